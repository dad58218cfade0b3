// The tree as a grid of rows: only those on the screen are in the page, however many there are.

import { Bars, ROW, drawAxis } from './time_bars.js';
import { element, merge } from './dom.js';
import { count, counted, duration, money, oneLine, tokens } from './format.js';
import { COST, ESTIMATED } from './model.js';
import { SORTED } from './sort.js';
import { GROUPS, describe } from './status.js';

const HEAD = 28;
const INDENT = 14;
const SHOWN_INDENT = 16; // levels: what is deeper is not pushed out of sight

export class Grid {
  constructor(viewer) {
    this.viewer = viewer;
    this.drawn = { rows: null, active: 0, at: new Map() }; // the rows that are in the page, by place
    this.axis = element('canvas', { class: 'axis', role: 'img', 'aria-label': 'Time axis' });
    this.head = element(
      'div', { class: 'head', role: 'row', 'aria-rowindex': 1 },
      ...[['Agent', 'name'], ['tokens Σ', 'number'], ['cost Σ', 'number'], ['time', 'number']]
        .map(([words, kind], at) => element('div', { class: kind, role: 'columnheader' },
          element('button', { type: 'button', class: 'sort', tabindex: -1, title: 'Sort the rows below each task', 'data-column': SORTED[at] }, words))),
      element('div', { class: 'time', role: 'columnheader' },
        element('span', { class: 'unseen' }, 'timeline'), this.axis),
    );
    this.window = element('div', { class: 'window', role: 'rowgroup' });
    this.scroller = element(
      'div',
      { class: 'scroller', id: 'grid', role: 'treegrid', tabindex: 0, 'aria-label': 'Agents', 'aria-colcount': 5 },
      element('div', { class: 'head-line', role: 'rowgroup' }, this.head), this.window,
    );
    this.canvas = element('canvas', {
      class: 'bars', role: 'img', 'aria-label': 'Time bars; the column "time" says the same',
    });
    this.nothing = element('p', { class: 'nothing', hidden: true }, 'Nothing is found. Escape shows everything.');
    this.element = element('div', { class: 'grid' }, this.scroller, this.canvas, this.nothing);
    this.bars = new Bars(
      this.canvas, viewer.model, viewer.rollups, viewer.treeOrder, viewer.critical,
    );
    this.scroller.addEventListener('scroll', () => viewer.draw());
    this.window.addEventListener('click', (event) => this.clicked(event));
    this.head.addEventListener('click', (event) => {
      const { column } = event.target.closest('[data-column]')?.dataset ?? {};
      if (!column) return;
      viewer.sortBy(column);
      this.focus();
    });
    this.window.addEventListener('dblclick', (event) => {
      const row = this.rowAt(event);
      if (row && !event.target.closest('.caret')) viewer.toggle(row);
    });
  }

  changed() {
    const { rollups, treeOrder, critical } = this.viewer;
    Object.assign(this.bars, { rollups, treeOrder, critical });
  }

  rowAt(event) {
    const found = event.target.closest('[data-place]');
    return found ? this.viewer.rows[Number(found.dataset.place)] : null;
  }

  clicked(event) {
    const row = this.rowAt(event);
    if (!row) return;
    this.viewer.select(row.key);
    if (event.target.closest('.caret') || row.kind === 'more') this.viewer.toggle(row);
    this.focus();
  }

  focus() {
    this.scroller.focus({ preventScroll: true });
  }

  get height() {
    return this.scroller.clientHeight - HEAD;
  }

  // How many rows fit: the budget of the collapse policy.
  get capacity() {
    return Math.max(8, Math.floor((this.height > 0 ? this.height : 600) / ROW));
  }

  // Be as high as all rows, before they are drawn: only then can it be scrolled to any of them.
  grow() {
    this.window.style.height = `${this.viewer.rows.length * ROW}px`;
  }

  // Scroll so that a row can be seen: by a row where that is enough, else to the middle.
  show(place) {
    const { scroller, height } = this;
    const over = scroller.scrollTop - place * ROW;
    const under = (place + 1) * ROW - height - scroller.scrollTop;
    if (over > 2 * ROW || under > 2 * ROW) scroller.scrollTop = place * ROW - height / 2;
    else if (over > 0) scroller.scrollTop = place * ROW;
    else if (under > 0) scroller.scrollTop = (place + 1) * ROW - height;
  }

  // The row that stays where it is on the screen when rows come and go: the selected one, or the first.
  anchor() {
    const { rows, place } = this.viewer;
    const first = Math.ceil(this.scroller.scrollTop / ROW);
    const isSeen = place >= first && (place + 1) * ROW <= this.scroller.scrollTop + this.height;
    const at = isSeen ? place : first;
    return { key: rows[at]?.key, over: at * ROW - this.scroller.scrollTop };
  }

  hold({ key, over }) {
    const place = this.viewer.places.get(key);
    if (place !== undefined) this.scroller.scrollTop = place * ROW - over;
  }

  draw() {
    const { viewer, scroller } = this;
    const { rows } = viewer;
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW));
    const seen = Math.ceil(this.height / ROW) + 1;
    const active = viewer.place;
    this.fillWindow(first, Math.min(rows.length, first + seen), active);
    scroller.setAttribute('aria-rowcount', rows.length + 1);
    const isSeen = active >= first && active < first + seen && rows.length;
    if (isSeen) scroller.setAttribute('aria-activedescendant', `row-${active}`);
    else scroller.removeAttribute('aria-activedescendant');
    this.nothing.hidden = rows.length > 0;
    this.markSort();
    this.drawTime(first);
  }

  markSort() {
    const { by, isFalling } = this.viewer.sort;
    SORTED.forEach((column, at) => {
      const head = this.head.children[at];
      if (column !== by) head.removeAttribute('aria-sort');
      else head.setAttribute('aria-sort', isFalling ? 'descending' : 'ascending');
    });
  }

  // Bring the rows of these places into the page. Whoever scrolls sees most of them again: these
  // stay as they are.
  fillWindow(first, last, active) {
    const { rows } = this.viewer;
    const isOther = this.drawn.rows !== rows;
    this.drawn.rows = rows;
    if (isOther) this.drawn.active = active;
    else if (this.drawn.active !== active) {
      for (const place of [this.drawn.active, active]) this.forget(place);
      this.drawn.active = active;
    }
    for (const place of this.drawn.at.keys()) if (place < first || place >= last) this.forget(place);
    const made = [];
    for (let place = first; place < last; place += 1) {
      const old = this.drawn.at.get(place);
      if (!old) this.drawn.at.set(place, this.row(rows[place], place));
      else if (isOther) merge(old, this.row(rows[place], place));
      made.push(this.drawn.at.get(place));
    }
    let next = this.window.firstChild;
    for (const row of made) {
      if (row === next) next = next.nextSibling;
      else this.window.insertBefore(row, next);
    }
    while (next) {
      const behind = next.nextSibling;
      next.remove();
      next = behind;
    }
  }

  forget(place) {
    this.drawn.at.get(place)?.remove();
    this.drawn.at.delete(place);
  }

  // The bars are drawn over their column, as wide as it is now.
  drawTime(first) {
    const { viewer, scroller, canvas } = this;
    const column = this.head.lastElementChild;
    canvas.style.left = `${column.offsetLeft}px`;
    canvas.style.width = `${column.offsetWidth}px`;
    canvas.style.height = `${this.height}px`;
    const scale = viewer.scaleFor(column.offsetWidth);
    drawAxis(this.axis, scale, viewer.model.start);
    this.bars.draw(viewer.rows, first, scroller.scrollTop - first * ROW, scale);
  }

  row(row, place) {
    const { viewer } = this;
    const isActive = place === viewer.place;
    // Of what a search shows, those above what was found stand back.
    const isAbove = viewer.hits !== null && !viewer.hits.has(row.number);
    const made = element('div', {
      class: `row ${row.kind}${isActive ? ' active' : ''}${isAbove ? ' above' : ''}`, id: `row-${place}`, role: 'row',
      'data-place': place, 'aria-rowindex': place + 2, 'aria-level': row.level,
      'aria-posinset': row.place, 'aria-setsize': row.siblings,
      'aria-selected': String(isActive),
      'aria-expanded': row.canExpand ? String(row.isExpanded) : null,
    });
    const numbers = row.kind === 'task' ? this.ofTask(row) : this.ofMany(row);
    const name = element('div', { class: 'name', role: 'gridcell' }, this.caret(row),
      ...(row.kind === 'task' ? this.taskName(row) : this.groupName(row)));
    made.style.top = `${place * ROW}px`;
    name.style.paddingLeft = `${8 + Math.min(row.level - 1, SHOWN_INDENT) * INDENT}px`;
    made.append(name, ...numbers.map((words) =>
      element('div', { class: 'number', role: 'gridcell' }, words)),
    element('div', { class: 'time', role: 'gridcell' }));
    return made;
  }

  caret(row) {
    const glyph = row.canExpand ? (row.isExpanded ? '▾' : '▸') : '';
    return element('span', { class: row.canExpand ? 'caret' : 'leaf', 'aria-hidden': 'true' }, glyph);
  }

  taskName({ number, canExpand, isExpanded }) {
    const { model, rollups } = this.viewer;
    const { glyph, word, group } = describe(model.status[number]);
    const about = oneLine(model.name(number));
    const parts = [
      element('span', { class: `glyph ${group}`, title: word, 'aria-hidden': 'true' }, glyph),
      element('span', { class: 'agent' }, oneLine(model.agent[number], 40)),
      element('span', { class: 'about', title: about }, about),
    ];
    // Every row has the word; it takes space only for a status that needs attention.
    const isPlain = group === 'done' || group === 'running' || group === 'queued';
    parts.push(element('span', { class: isPlain ? 'unseen' : `word ${group}` }, word));
    if (model.shownMode(number) === 'detached') {
      parts.push(element('span', { class: 'badge dashed' }, 'detached'));
    }
    if (canExpand && !isExpanded) parts.push(...this.counts((name) => rollups.below(number, name),
      rollups.tasks[number] - 1));
    return parts;
  }

  // What a collapsed row hides: how many tasks, and how many of each status that needs attention.
  counts(of, below) {
    const parts = [element('span', { class: 'below', title: `${counted(below, 'agent')} below` },
      `${count(below)}↓`)];
    for (const group of ['waiting', 'running', 'failed', 'interrupted']) {
      const number = of(group);
      if (!number) continue;
      const words = `${count(number)} ${GROUPS[group].word} below`;
      parts.push(element('span', { class: `count ${group}`, title: words },
        `${GROUPS[group].glyph}${count(number)}`,
        element('span', { class: 'unseen' }, ` ${GROUPS[group].word}`)));
    }
    return parts;
  }

  groupName(row) {
    const { rollups } = this.viewer;
    const { members, agent, kind } = row;
    const own = {};
    for (const member of members) own[rollups.own[member]] = (own[rollups.own[member]] ?? 0) + 1;
    const title = kind === 'more'
      ? element('span', { class: 'about' }, `… ${count(members.length)} more ${oneLine(agent, 40)}`)
      : element('span', { class: 'agent' }, `${oneLine(agent, 40)} ×${count(members.length)}`);
    const meter = element('span', { class: 'meter', 'aria-hidden': 'true' });
    const parts = [title, meter];
    for (const group of Object.keys(GROUPS)) {
      if (!own[group]) continue;
      const part = element('span', { class: `part ${group}` });
      part.style.flexGrow = own[group];
      meter.append(part);
      parts.push(element('span', { class: `count ${group}`, title: `${count(own[group])} ${GROUPS[group].word}` },
        `${GROUPS[group].glyph}${count(own[group])}`,
        element('span', { class: 'unseen' }, ` ${GROUPS[group].word}`)));
    }
    const below = members.reduce((sum, member) => sum + rollups.tasks[member] - 1, 0);
    if (below) {
      parts.push(element('span', { class: 'below', 'aria-hidden': 'true' }, '·'), ...this.counts((name) => members.reduce(
        (sum, member) => sum + rollups.below(member, name), 0), below));
    }
    return parts;
  }

  ofTask({ number }) {
    const { model } = this.viewer;
    return [
      tokens(model.tokens(number), model.ofTotal(number, ESTIMATED)),
      money(model.ofTotal(number, COST), model.unknownTotal(number)),
      duration(model.seconds(number)),
    ];
  }

  ofMany({ members }) {
    const { model, rollups } = this.viewer;
    const sum = (of) => members.reduce((total, member) => total + of(member), 0);
    const first = members.reduce((least, it) => Math.min(least, rollups.first[it]), Infinity);
    const last = members.reduce((most, it) => Math.max(most, rollups.final[it]), -Infinity);
    return [
      tokens(sum((member) => model.tokens(member)), sum((member) => model.ofTotal(member, ESTIMATED))),
      money(sum((member) => model.ofTotal(member, COST)),
        sum((member) => model.unknownTotal(member))),
      last < first ? '' : duration(last - first),
    ];
  }
}
