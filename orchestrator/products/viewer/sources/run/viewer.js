// The viewer: one run in four views, with one collapse state and one selection for all of them.

import { ROW, TreeOrder } from './time_bars.js';
import { Cost } from './cost.js';
import { criticalPath } from './critical_path.js';
import { Details } from './details.js';
import { element, patch } from './dom.js';
import { Failures } from './failures.js';
import { Flame } from './flame.js';
import { CollapsedTree, searchTasks } from './collapse.js';
import { count, counted } from './format.js';
import { Graph } from './graph.js';
import { Grid } from './grid.js';
import { Keys, helpDialog } from './keyboard.js';
import { headline, hints, stripNote } from './headline.js';
import { Rollups } from './model.js';
import { Scale, idleTimes } from './time_scale.js';
import { ScriptView } from './script.js';
import { nextSort, rowOrder } from './sort.js';
import { splitter } from './splitter.js';
import { GROUPS } from './status.js';
import { dragToZoom, drawStrip, workChanges } from './activity.js';

const TABS = [['tree', 'Tree + time'], ['graph', 'Graph'], ['flame', 'Flame'], ['cost', 'Cost'], ['failures', 'Failures'], ['script', 'Script']];
const SMALL = 2000; // tasks: what follows from so many is found within a frame
const MARGIN = 0.02; // of the time axis, left free at both ends

export class Viewer {
  // transcripts: see transcripts.js; critical: the numbers of the tasks on the critical path, if they
  // are known already; live: what goes on with the run, if this is no recording; drawn: called after
  // each drawing.
  constructor(model, { title, transcripts, critical = null, summary = null, live = null, drawn = () => {} }) {
    this.model = model;
    this.title = title;
    this.transcripts = transcripts;
    this.knownCritical = critical;
    this.summary = summary;
    this.live = live;
    this.drawn = drawn;
    this.sort = { by: null, isFalling: false };
    this.sumUp();
    this.collapsed = new CollapsedTree(model, this.rollups);
    this.window = null; // the visible part of the time: [from, to]
    this.words = '';
    this.groups = new Set();
    this.collapsedHits = new Set();
    this.result = null;
    this.active = model.size ? model.ids[0] : null;
    this.tab = 'tree';
    this.allTabs = summary ? [['summary', 'Summary'], ...TABS] : TABS;
    this.changedAt = 0; // when all of a live run was last drawn anew
    this.isGrown = false; // since then
    this.build();
  }

  // All that follows from the tasks, as they are now.
  sumUp() {
    const { model } = this;
    this.rollups = new Rollups(model);
    this.treeOrder = new TreeOrder(model, this.rollups);
    this.sumUpTimes();
  }

  sumUpTimes() {
    const { model } = this;
    this.idle = idleTimes(model);
    this.changes = workChanges(model);
    // Without the root, which is always on it.
    this.critical = new Set(this.knownCritical ?? criticalPath(model).filter(Boolean));
    this.failures = this.treeOrder.failed.map((number) => model.until(number)).sort((a, b) => a - b);
  }

  // Show the tasks of a live run as they are now, where the reader is. What takes long for a large run
  // is done once a second, and when it has ended.
  changed({ hasGrown, isOver }) {
    this.rollups = new Rollups(this.model);
    this.isGrown ||= hasGrown;
    this.treeOrder = new TreeOrder(this.model, this.rollups);
    this.collapsed.rollups = this.rollups;
    this.grid.changed();
    this.details.changed();
    const now = performance.now();
    if (isOver || this.model.size <= SMALL || now - this.changedAt >= 1000) {
      this.changedAt = now;
      this.sumUpTimes();
      this.grid.changed();
      for (const view of Object.values(this.views)) view.changed();
      patch(this.note, stripNote(this));
      if (this.isGrown && this.isFitted) {
        this.collapsed.fit(this.grid.capacity);
        if (this.selected && this.result) this.collapsed.reveal(this.selected);
      }
      this.isGrown = false;
    }
    // A group shows its most important tasks: the selected one stays when others become important.
    if (this.selected && !this.result) this.collapsed.reveal(this.selected);
    patch(this.top, headline(this));
    this.fillChips();
    const held = this.grid.anchor();
    this.refresh();
    this.grid.hold(held);
  }

  build() {
    this.top = element(this.live ? 'section' : 'header', { class: 'top', 'aria-label': 'The run' }, ...headline(this));
    this.note = element('p', { class: 'strip-note' }, ...stripNote(this));
    this.grid = new Grid(this);
    this.details = new Details(this);
    this.views = { tree: this.grid, graph: new Graph(this), flame: new Flame(this), cost: new Cost(this), failures: new Failures(this), script: new ScriptView(this) };
    this.field = element('input', {
      type: 'search', placeholder: 'Search name, id, error', 'aria-label': 'Search name, id, error',
      'aria-keyshortcuts': '/', oninput: () => this.search(this.field.value),
    });
    this.chips = element('div', { class: 'chips', role: 'group', 'aria-label': 'Show only' });
    this.strip = element('canvas', { class: 'strip', role: 'img', 'aria-label': 'Agents at work over time' });
    this.tabs = element('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Views' },
      ...this.allTabs.map(([name, words]) => element('button', {
        type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': `panel-${name}`,
        onclick: () => this.showTab(name),
      }, words)));
    this.panels = this.allTabs.map(([name, words]) => element('div', {
      class: 'panel', id: `panel-${name}`, role: 'tabpanel', 'aria-label': words,
    }, name === 'summary' ? this.summary : this.views[name].element));
    this.footer = element('p', { class: 'rows' });
    this.announcer = element('p', { class: 'unseen', role: 'status', 'aria-live': 'polite' });
    this.keys = new Keys(this);
    this.help = helpDialog(Boolean(this.live));
    const button = (words, does, title) =>
      element('button', { type: 'button', class: 'chip', title, onclick: does }, words);
    this.element = element('div', { class: 'viewer' },
      this.top,
      element('section', { class: 'toolbar', 'aria-label': 'Search, filters, folding and views' }, this.field, this.chips,
        element('div', { class: 'folds', role: 'group', 'aria-label': 'Folding' },
          button('Smart fold', () => this.collapseToFit(), 'What matters, in one screen'),
          button('Fold all', () => this.collapseAll()), button('Open all', () => this.expandAll())),
        this.tabs),
      element('section', { class: 'strip-line', 'aria-label': 'Over time' }, this.note, this.strip),
      element('main', { class: 'main' }, element('div', { class: 'panels' }, ...this.panels),
        splitter(this), this.details.element),
      element('footer', { class: 'footer' }, this.footer, hints(this)),
      this.announcer, this.help);
    this.addListeners();
    this.fillChips();
    this.showTab('tree');
  }

  // The tabs of this run: the last one of all is for scripts.
  tabList() {
    return this.model.scripts.length ? this.allTabs : this.allTabs.slice(0, -1);
  }

  fillChips() {
    const has = Object.keys(GROUPS).filter((group) => this.model.size && this.rollups.groups[group][0]);
    patch(this.chips, has.map((group) => {
      const { glyph, word } = GROUPS[group];
      return element('button', {
        type: 'button', class: 'chip', 'aria-pressed': String(this.groups.has(group)),
        'data-group': group, onclick: (event) => this.filter(event.currentTarget.dataset.group),
      }, element('span', { class: `glyph ${group}`, 'aria-hidden': 'true' }, glyph), ` ${word} `,
      element('b', {}, count(this.rollups.groups[group][0])));
    }));
  }

  addListeners() {
    new ResizeObserver(() => this.draw()).observe(this.element);
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', () => this.draw());
    dragToZoom(this.strip, this);
  }

  // --- drawing

  // Update the rows at once: the next key must find them as they are.
  refresh(place = this.place) {
    this.result = searchTasks(this.model, this.rollups, this.words, this.groups);
    this.rows = this.result ? this.collapsed.searchRows(this.result.shown, this.collapsedHits) : this.collapsed.rows();
    this.hits = this.result && new Set(this.result.hits);
    this.places = new Map(this.rows.map((row, at) => [row.key, at]));
    if (!this.places.has(this.active)) {
      // The selected row is collapsed away: select the one in its place.
      this.active = this.rows[Math.max(0, Math.min(place, this.rows.length - 1))]?.key ?? null;
    }
    this.grid.grow();
    this.draw();
  }

  get place() {
    return this.places?.get(this.active) ?? 0;
  }

  // The number of the selected task, or null.
  get selected() {
    return this.model.numbers.get(this.active) ?? null;
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.drawNow();
    });
  }

  drawNow() {
    if (!this.element.isConnected || !this.rows) return;
    this.tabs.lastChild.hidden = !this.model.scripts.length;
    this.views[this.tab]?.draw();
    this.details.draw();
    this.drawn();
    drawStrip(this.strip, this.changes, this.failures, this.wholeScale(this.strip.clientWidth), this.window);
    const all = counted(this.model.size, 'agent');
    const rows = counted(this.rows.length, 'row');
    this.footer.textContent = this.result
      ? `${count(this.result.hits.length)} found of ${all} · ${rows} with all above them · Escape shows everything`
      : `${rows} of ${all}`;
  }

  wholeScale(width) {
    const { start, last } = this.model;
    return new Scale(start, last, this.idle, 0, width);
  }

  scaleFor(width) {
    const [from, to] = this.window ?? [this.model.start, this.model.last];
    const margin = Math.min(MARGIN * width, 12);
    return new Scale(from, to, this.idle, margin, width - 2 * margin);
  }

  // Where the bar of a task is in the page, while its row is on the screen: for tests, and pointers.
  barOf(id) {
    const place = this.places.get(id);
    const number = this.model.numbers.get(id);
    const canvas = this.grid.canvas.getBoundingClientRect();
    const scale = this.scaleFor(this.grid.canvas.clientWidth);
    const span = this.grid.bars.span(this.model.started[number], this.model.until(number), scale);
    const top = place * ROW - this.grid.scroller.scrollTop;
    return { x: canvas.x + span.x, y: canvas.y + top + ROW / 2 - 3, width: span.width };
  }

  announce(words) {
    this.announcer.textContent = words;
  }

  // --- actions

  showTab(tab) {
    this.tab = tab;
    this.allTabs.forEach(([name], at) => {
      const button = this.tabs.children[at];
      button.setAttribute('aria-selected', String(name === tab));
      button.tabIndex = name === tab ? 0 : -1;
      this.panels[at].hidden = name !== tab;
    });
    this.element.dataset.tab = tab;
    this.draw();
  }

  // Collapse the tree so that the most important rows fit the screen. Needs the size of the page.
  collapseToFit() {
    this.isFitted = true; // until the reader folds or opens a row
    this.collapsed.fit(this.grid.capacity);
    if (this.selected) this.collapsed.reveal(this.selected);
    this.grid.scroller.scrollTop = 0;
    this.clear();
  }

  collapseAll() {
    this.isFitted = false;
    this.collapsed.collapseAll();
    this.clear();
  }

  expandAll() {
    this.isFitted = false;
    this.collapsed.expandAll();
    this.clear();
  }

  // Put the rows below each task in the order of a column.
  sortBy(column) {
    this.sort = nextSort(this.sort, column);
    this.collapsed.order = rowOrder(this, this.sort);
    this.refresh();
    this.grid.show(this.place);
    const how = this.sort.by && (this.sort.isFalling ? 'largest first' : 'smallest first');
    this.announce(how ? `Sorted by ${this.sort.by}, ${how}` : 'In the order in which they were asked for');
  }

  // Let the keys act on what is shown.
  focus() {
    const view = this.views[this.tab];
    (view?.scroller ?? view?.canvas ?? this.grid.scroller).focus({ preventScroll: true });
  }

  select(key, { show = true } = {}) {
    this.active = key;
    if (show) this.grid.show(this.place);
    this.draw();
  }

  toggle(row) {
    if (!row.canExpand) return;
    this.isFitted = false;
    if (this.result) {
      if (!this.collapsedHits.delete(row.key)) this.collapsedHits.add(row.key);
    } else if (row.isExpanded) this.collapsed.collapse(row);
    else this.collapsed.expand(row);
    this.refresh();
    this.grid.show(this.place);
  }

  // Open the path to a task and select it.
  reveal(number, { quietly = false } = {}) {
    if (this.result && !this.result.shown.has(number)) this.clear();
    if (!this.result) this.collapsed.reveal(number);
    this.active = this.model.ids[number];
    this.refresh();
    this.grid.show(this.place);
    if (!quietly && this.tab !== 'tree' && this.tab !== 'graph') this.showTab('tree');
  }

  // Select the next task of a status group in tree order; after the last comes the first.
  next(group, by = 1) {
    const order = this.treeOrder.order;
    const here = this.selected === null ? 0 : this.treeOrder.place[this.selected];
    for (let step = 1; step <= order.length; step += 1) {
      const number = order[(here + by * step + 2 * order.length) % order.length];
      if (this.rollups.own[number] === group) {
        this.reveal(number);
        this.announce(`${GROUPS[group].word}: ${this.model.agent[number]} ${this.model.name(number)}`);
        return;
      }
    }
    this.announce(`Nothing is ${GROUPS[group].word}.`);
  }

  search(words) {
    this.words = words;
    this.collapsedHits.clear();
    this.refresh();
    this.grid.scroller.scrollTop = 0;
    this.announce(this.result ? `${count(this.result.hits.length)} found` : '');
  }

  filter(group) {
    if (!this.groups.delete(group)) this.groups.add(group);
    this.collapsedHits.clear();
    this.fillChips();
    this.refresh();
    this.grid.scroller.scrollTop = 0;
    this.chips.querySelector(`[data-group="${group}"]`)?.focus({ preventScroll: true });
  }

  // End the search and the filters, and keep the selection.
  clear() {
    const { active } = this;
    const number = this.result ? this.model.numbers.get(active) : undefined;
    this.words = this.field.value = '';
    this.groups.clear();
    this.collapsedHits.clear();
    this.fillChips();
    if (number !== undefined) this.collapsed.reveal(number);
    this.refresh();
    this.grid.show(this.place);
  }

  zoom(window_) {
    const { start, last } = this.model;
    if (window_ === null) this.window = null;
    else {
      const least = Math.max((last - start) / 1e6, 1e-3);
      const [from, to] = [Math.max(window_[0], start), Math.min(window_[1], last)];
      this.window = to - from < least ? [from, from + least] : [from, to];
    }
    this.draw();
  }

  zoomTo(number) {
    const [from, to] = [this.rollups.first[number], this.rollups.final[number]];
    if (from === Infinity) return;
    const margin = 0.03 * (to - from) || 0.05;
    this.zoom([from - margin, to + margin]);
  }

  zoomAround(at, by) {
    const [from, to] = this.window ?? [this.model.start, this.model.last];
    const window_ = [at - (at - from) * by, at + (to - at) * by];
    const { start, last } = this.model;
    this.zoom(window_[0] <= start && window_[1] >= last ? null : window_);
  }

  swapTheme() {
    const { documentElement: root } = document;
    const isDark = root.dataset.theme
      ? root.dataset.theme === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    this.draw();
  }
}
