// The failures of a run, grouped by their errors: of a thousand, most are one.
//
// A group has the text that its errors share as its title, and the numbers that differ below it.

import { element, fill } from './dom.js';
import { count, counted, oneLine, printable } from './format.js';

const SHOWN = 12; // tasks of a group; more are shown when asked for
const MOST_VALUES = 20; // of the numbers in which the errors of a group differ
const NUMBERS = /\d+/g;

export class Failures {
  constructor(viewer) {
    this.viewer = viewer;
    this.open = new Set(); // the errors whose tasks are all shown
    this.element = element('div', { class: 'failures' });
    this.isStale = true;
    this.element.addEventListener('click', (event) => this.clicked(event));
  }

  changed() {
    this.isStale = true;
  }

  clicked(event) {
    const { task, all } = event.target.closest('[data-task], [data-all]')?.dataset ?? {};
    if (task) this.viewer.reveal(this.viewer.model.numbers.get(task));
    if (!all) return;
    this.open.add(all);
    this.changed();
    this.draw();
  }

  // The most frequent first. Numbers in an error do not make it another one.
  groups() {
    const { model, treeOrder } = this.viewer;
    const groups = new Map();
    for (const number of treeOrder.failed) {
      const error = oneLine(model.error[number], 300) || model.status[number];
      const key = error.replaceAll('#', '♯').replace(NUMBERS, '#');
      if (!groups.has(key)) groups.set(key, { key, tasks: [], numbers: [] });
      groups.get(key).tasks.push(number);
      groups.get(key).numbers.push(error.match(NUMBERS) ?? []);
    }
    return [...groups.values()].map(withTitle).sort((one, other) => other.tasks.length - one.tasks.length);
  }

  draw() {
    if (!this.isStale) return;
    this.isStale = false;
    const groups = this.groups();
    const all = this.viewer.treeOrder.failed.length;
    fill(this.element, element('h2', {}, all ? `${counted(all, 'failure')}, ${counted(groups.length, 'error')}` : 'Nothing has failed.'),
      ...groups.map((group) => this.group(group)));
  }

  group({ key, title, values, tasks }) {
    const { model } = this.viewer;
    const shown = this.open.has(key) ? tasks : tasks.slice(0, SHOWN);
    return element('section', { class: 'failure' },
      element('h3', {}, element('b', { class: 'failed' }, `✗ ${count(tasks.length)}`), ' ', element('span', {}, printable(title))),
      values.length ? element('p', { class: 'values' }, `…: ${values.slice(0, MOST_VALUES).join(', ')}${values.length > MOST_VALUES ? `, and ${count(values.length - MOST_VALUES)} more` : ''}`) : null,
      element('ul', {}, ...shown.map((number) => element('li', {}, element('button', {
        type: 'button', class: 'link', 'data-task': model.ids[number],
      }, `${oneLine(model.agent[number], 40)} ${oneLine(model.name(number), 80)}`), element('span', { class: 'path' }, oneLine(model.path[number], 160))))),
      shown.length < tasks.length ? element('button', { type: 'button', class: 'link', 'data-all': key }, `show ${counted(tasks.length - shown.length, 'more task')}`) : null);
  }
}

// The text that all errors of a group share, and the values that stand for each "…" in it.
function withTitle({ key, tasks, numbers }) {
  const differs = numbers[0].map((first, at) => numbers.some((it) => it[at] !== first));
  let at = -1;
  const title = key.replace(/#/g, () => {
    at += 1;
    return differs[at] ? '…' : numbers[0][at];
  });
  const values = new Set(numbers.map((it) => it.filter((_, place) => differs[place]).join(' / ')));
  return { key, title: title.replaceAll('♯', '#'), tasks, values: differs.some(Boolean) ? [...values] : [] };
}
