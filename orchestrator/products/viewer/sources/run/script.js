// The source of a script, with the tasks that each line has requested: the lines that wait are tinted.

import { element, patch } from './dom.js';
import { count, counted, duration, money, oneLine, printable } from './format.js';
import { COST } from './model.js';
import { GROUPS } from './status.js';

const LINE = /^line (\d+)(?::|$)/; // the label of a task that a script has requested
const OPEN = ['waiting', 'running', 'interrupted', 'queued'];
const KINDS = ['c', 's', 'k', 'n', 'f']; // comment, string, keyword, number, function
const TOKEN = new RegExp([
  '(#[^\\n]*)',
  '([fr]?(?:"""[^]*?"""|\'\'\'[^]*?\'\'\'|"(?:\\\\.|[^"\\\\\\n])*"|\'(?:\\\\.|[^\'\\\\\\n])*\'))',
  '\\b(and|as|async|await|break|continue|def|elif|else|except|False|finally|for|from|if|import|in|is|lambda|None|not|or|pass|raise|return|True|try|while)\\b',
  '\\b(\\d[\\d_.]*)\\b',
  '\\b(\\w+)(?=\\()',
].join('|'), 'g');

export class ScriptView {
  constructor(viewer) {
    this.viewer = viewer;
    this.head = element('div', { class: 'source-head' });
    this.lines = element('ol', { class: 'source-lines' });
    this.scroller = element('section', { class: 'source', 'aria-label': 'Source of the script', tabindex: 0 }, this.head, this.lines);
    this.element = this.scroller;
    this.isStale = true;
    this.shown = null;
    this.scroller.addEventListener('click', (event) => this.clicked(event));
  }

  changed() {
    this.isStale = true;
  }

  clicked(event) {
    const { task } = event.target.closest('[data-task]')?.dataset ?? {};
    if (task) this.viewer.reveal(this.viewer.model.numbers.get(task), { quietly: true });
  }

  // The script around the selected task; else the last one that has not ended, or the last.
  get number() {
    const { model, selected } = this.viewer;
    for (let at = selected ?? -1; at >= 0; at = model.parent[at]) if (model.script(at)) return at;
    const known = model.scripts.filter((it) => model.script(it));
    return known.findLast((it) => model.ended[it] === null) ?? known.at(-1) ?? null;
  }

  draw() {
    const { number } = this;
    const { selected } = this.viewer;
    const key = `${number} ${selected}`;
    if (!this.isStale && this.shown === key) return;
    this.isStale = false;
    const isOther = this.shown?.split(' ')[0] !== String(number);
    this.shown = key;
    if (number === null) {
      patch(this.head, [element('p', { class: 'hint' }, 'This run has no script, or its source is too long for this page.')]);
      patch(this.lines, []);
      return;
    }
    const { model } = this.viewer;
    const sources = highlighted(printable(model.script(number).code));
    const lines = this.tasksByLine(number);
    const isOver = model.ended[number] !== null;
    const reached = isOver ? sources.length : Math.max(0, ...lines.keys());
    patch(this.head, this.about(number, sources.length));
    patch(this.lines, sources.map((source, at) => this.line(source, at + 1, lines.get(at + 1) ?? [], reached)));
    if (isOther) this.lines.querySelector('.now')?.scrollIntoView({ block: 'center' });
  }

  about(number, lines) {
    const { model } = this.viewer;
    const known = model.scripts.filter((it) => model.script(it));
    const at = known.indexOf(number);
    const other = (by, words, name) => element('button', {
      type: 'button', class: 'chip', 'aria-label': name, disabled: !known[at + by],
      'data-task': model.ids[known[at + by]] ?? null,
    }, words);
    return [
      element('button', { type: 'button', class: 'link', 'data-task': model.ids[number] }, oneLine(model.name(number), 80) || 'script'),
      element('span', { class: 'hint' }, `${counted(lines, 'line')} · ${counted(model.children[number].length, 'call')}`),
      ...(known.length > 1 ? [element('span', { class: 'others' }, other(-1, '‹', 'Previous script'), ` ${at + 1}/${known.length} `, other(1, '›', 'Next script'))] : []),
    ];
  }

  // The tasks of a script by the lines that requested them.
  tasksByLine(number) {
    const { model } = this.viewer;
    const lines = new Map();
    for (const task of model.children[number]) {
      const line = Number(LINE.exec(model.label[task])?.[1] ?? 0);
      if (!lines.has(line)) lines.set(line, []);
      lines.get(line).push(task);
    }
    return lines;
  }

  line(source, at, tasks, reached) {
    const { own } = this.viewer.rollups;
    const waits = tasks.some((it) => OPEN.includes(own[it]));
    const isSelected = tasks.includes(this.viewer.selected);
    const state = waits ? 'now' : at > reached ? 'later' : 'past';
    return element('li', { class: `line ${state}`, 'data-line': at, 'aria-current': isSelected ? 'true' : null },
      element('span', { class: 'no' }, String(at)),
      element('span', { class: 'took', title: tasks.length ? 'The time in which its tasks ran' : null }, tasks.length ? duration(this.took(tasks)) : ''),
      element('code', {}, ...source),
      element('span', { class: 'tags' }, ...this.tags(tasks)));
  }

  // The time in which a task of a line ran or waited.
  took(tasks) {
    const { model } = this.viewer;
    const spans = tasks.map((it) => [model.requested[it], model.until(it)]).sort((one, other) => one[0] - other[0]);
    let [sum, end] = [0, -Infinity];
    for (const [from, to] of spans) {
      sum += Math.max(0, to - Math.max(from, end));
      end = Math.max(end, to);
    }
    return sum;
  }

  // A tag for each agent of a line, and one for the tasks that wait for a person or have failed.
  tags(tasks) {
    const { model, rollups } = this.viewer;
    const byAgent = Map.groupBy(tasks, (it) => model.agent[it]);
    const in_ = (group) => tasks.filter((it) => rollups.groups[group][it]);
    const tag = (group, among, ...content) => element('button', {
      type: 'button', class: `tag ${group}`, 'data-task': model.ids[among.find((it) => rollups.groups[group][it]) ?? among[0]],
    }, element('span', { class: 'glyph', 'aria-hidden': 'true' }, GROUPS[group].glyph), ...content);
    const tags = [...byAgent].map(([agent, among]) => {
      const ended = among.filter((it) => !OPEN.includes(rollups.own[it]));
      const group = Object.keys(GROUPS).find((name) => name !== 'failed' && among.some((it) => rollups.own[it] === name))
        ?? 'failed';
      const cost = among.reduce((sum, it) => sum + model.ofTotal(it, COST), 0);
      const unknown = among.reduce((sum, it) => sum + model.unknownTotal(it), 0);
      return tag(group, among, oneLine(agent, 40),
        ...(among.length > 1 ? [meter(among, rollups), `${count(ended.length)}/${count(among.length)}`] : []),
        ...(cost || unknown ? [element('em', {}, money(cost, unknown))] : []));
    });
    const [waiting, failed] = [in_('waiting'), tasks.filter((it) => rollups.own[it] === 'failed')];
    if (waiting.length) tags.push(tag('waiting', waiting, `${count(waiting.length)} waiting for you`));
    if (failed.length && tasks.length > 1) tags.push(tag('failed', failed, `${count(failed.length)} failed`));
    return tags;
  }
}

function meter(tasks, rollups) {
  const groups = ['done', 'failed', 'cancelled', 'waiting', 'running'];
  return element('span', { class: 'meter', 'aria-hidden': 'true' }, ...groups.flatMap((group) => {
    const among = tasks.filter((it) => rollups.own[it] === group).length;
    if (!among) return [];
    const part = element('i', { class: `part ${group}` });
    part.style.width = `${(100 * among) / tasks.length}%`;
    return [part];
  }));
}

// The lines of a program, each as texts and coloured elements.
function highlighted(code) {
  const lines = [[]];
  const add = (text, kind) => text.split('\n').forEach((part, at) => {
    if (at) lines.push([]);
    if (part) lines.at(-1).push(kind ? element('span', { class: kind }, part) : part);
  });
  let done = 0;
  for (const found of code.matchAll(TOKEN)) {
    add(code.slice(done, found.index));
    add(found[0], KINDS[found.slice(1).findIndex((it) => it !== undefined)]);
    done = found.index + found[0].length;
  }
  add(code.slice(done));
  // Blank lines at both ends are kept: they count.
  if (lines.length > 1 && !lines.at(-1).length) lines.pop();
  return lines;
}
