// The keyboard. Single letters act only while the tree or a drawing has the focus, so that typing
// or dictating elsewhere triggers nothing.

import { element } from './dom.js';

const KEYS = [
  ['↑ ↓', 'the row above, below'],
  ['→', 'open; then into it'],
  ['←', 'fold; then to who asked'],
  ['Home, End', 'the first row, the last one'],
  ['Page Up, Page Down', 'a screen up, down'],
  ['Enter', 'the transcript'],
  ['Space', 'open or fold'],
  ['n, N', 'the next, the previous that failed'],
  ['w, W', 'the next, the previous that waits'],
  ['/', 'search'],
  ['Escape', 'show everything again; back to the tree'],
  ['z', 'zoom time to the row'],
  ['0', 'all of the time'],
  ['+ −', 'depth of the flame; size of the graph'],
  ['1 … 7', 'the tabs'],
  ['s', 'smart fold'],
];

const LIVE_KEYS = [
  ['a, d', 'approve, deny what the row asks'],
  ['m', 'message to the task'],
  ['p', 'start no new tasks below it, or start them again'],
  ['x', 'cancel the task and all below it'],
];

export function helpDialog(isLive) {
  const dialog = element('dialog', { class: 'help', 'aria-label': 'Keys' },
    element('h2', {}, 'Keys'),
    element('p', { class: 'hint' }, 'They act while the tree or a drawing has the focus.'),
    element('table', {}, element('tbody', {}, ...[...KEYS, ...(isLive ? LIVE_KEYS : [])].map(([keys, words]) =>
      element('tr', {}, element('th', { scope: 'row' }, element('kbd', {}, keys)), element('td', {}, words))))),
    element('form', { method: 'dialog' }, element('button', {}, 'Close')));
  return dialog;
}

export class Keys {
  constructor(viewer) {
    this.viewer = viewer;
    const { grid, views, field, tabs, details } = viewer;
    grid.scroller.addEventListener('keydown', (event) => this.run(event, { ...this.moves(), ...this.letters() }));
    for (const view of [views.graph.canvas, views.flame.scroller, views.cost.canvas, views.script.scroller]) {
      view.addEventListener('keydown', (event) => this.run(event, this.letters()));
    }
    field.addEventListener('keydown', (event) => this.run(event, {
      Escape: () => this.leave(),
      Enter: () => this.enterFound(),
      ArrowDown: () => this.enterFound(),
    }));
    tabs.addEventListener('keydown', (event) => this.run(event, {
      ArrowRight: () => this.tab(1), ArrowLeft: () => this.tab(-1),
    }));
    details.element.addEventListener('keydown', (event) => this.run(event, { Escape: () => this.leave() }));
    // A slash opens the search wherever the focus is, as people expect.
    document.addEventListener('keydown', (event) => {
      const isTyping = event.target.closest?.('input, textarea, dialog, [contenteditable]');
      if (event.key === '/' && !isTyping && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        field.focus();
        field.select();
      }
    });
  }

  run(event, actions) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  moves() {
    const { viewer } = this;
    const { rows, place, grid } = viewer;
    const row = rows[place];
    const to = (at) => {
      const target = rows[Math.max(0, Math.min(rows.length - 1, at))];
      if (target) viewer.select(target.key);
    };
    return {
      ArrowDown: () => to(place + 1),
      ArrowUp: () => to(place - 1),
      Home: () => to(0),
      End: () => to(rows.length - 1),
      PageDown: () => to(place + grid.capacity - 1),
      PageUp: () => to(place - grid.capacity + 1),
      ArrowRight: () => {
        if (row?.canExpand && !row.isExpanded) viewer.toggle(row);
        else if (row?.isExpanded) to(place + 1);
      },
      ArrowLeft: () => {
        if (row?.isExpanded) viewer.toggle(row);
        else this.up(place);
      },
      ' ': () => row && viewer.toggle(row),
      Enter: () => {
        if (row && row.kind !== 'task') viewer.toggle(row);
        else this.read();
      },
    };
  }

  up(place) {
    const { rows } = this.viewer;
    for (let at = place - 1; at >= 0; at -= 1) {
      if (rows[at].level < rows[place].level) {
        this.viewer.select(rows[at].key);
        return;
      }
    }
  }

  letters() {
    const { viewer } = this;
    const tabs = Object.fromEntries(viewer.tabList().map(([name], at) => [String(at + 1), () => this.go(name)]));
    const bigger = { tree: () => {}, graph: () => viewer.views.graph.zoom(1.2), flame: () => viewer.views.flame.deeper(1) };
    const smaller = { tree: () => {}, graph: () => viewer.views.graph.zoom(0.83), flame: () => viewer.views.flame.deeper(-1) };
    return {
      ...tabs,
      n: () => viewer.next('failed'),
      N: () => viewer.next('failed', -1),
      w: () => viewer.next('waiting'),
      W: () => viewer.next('waiting', -1),
      z: () => viewer.selected !== null && viewer.zoomTo(viewer.selected),
      0: () => viewer.zoom(null),
      s: () => viewer.collapseToFit(),
      '+': () => bigger[viewer.tab]?.(),
      '=': () => bigger[viewer.tab]?.(),
      '-': () => smaller[viewer.tab]?.(),
      '?': () => viewer.help.showModal(),
      ...viewer.live?.letters(),
      Escape: () => this.leave(),
    };
  }

  // End the search; if there is none, show all of the time.
  leave() {
    const { viewer } = this;
    if (viewer.result) viewer.clear();
    else if (viewer.window) viewer.zoom(null);
    viewer.grid.focus();
  }

  enterFound() {
    const { viewer } = this;
    if (viewer.result?.hits.length) viewer.select(viewer.model.ids[viewer.result.hits[0]]);
    viewer.grid.focus();
  }

  read() {
    // The details are drawn with the next frame: draw them now, so that they can take the focus.
    this.viewer.drawNow();
    this.viewer.details.element.querySelector('.transcript, .conversation')?.focus();
  }

  tab(by) {
    const { viewer } = this;
    const names = viewer.tabList().map(([name]) => name);
    const at = (names.indexOf(viewer.tab) + by + names.length) % names.length;
    viewer.showTab(names[at]);
    viewer.tabs.children[at].focus();
  }

  go(name) {
    const { viewer } = this;
    viewer.showTab(name);
    viewer.focus();
  }
}
