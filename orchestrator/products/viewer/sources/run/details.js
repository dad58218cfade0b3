// The details of a task or a group: its own numbers, those of its subtree, and its transcript.

import { element, fill, patch } from './dom.js';
import { cached, count, counted, duration, exactMoney, oneLine, printable, tokens } from './format.js';
import { CACHED, CALLS, COST, ESTIMATED, INPUT, OUTPUT, REASONING, SAVED, UNPRICED } from './model.js';
import { MessageList } from './messages.js';
import { GROUPS, describe } from './status.js';

const SHORT_LINES = 40;
const SHORT_CHARACTERS = 4000;
const AT_ONCE = 60; // messages; more are shown when asked for

const REASONS = {
  asked_to_wait: 'the caller asked to wait for it',
  handed_off: 'the caller handed the conversation off to it',
  cannot_be_told_later: 'the caller cannot be told anything after its turn ends',
  none_in_background: 'the rules allow nothing in the background',
  can_be_told_later: 'the session that asked can be told later',
  runs_beside: 'its function goes on beside it, and waits for it at the end',
};

export class Details {
  constructor(viewer) {
    this.viewer = viewer;
    this.head = element('div', { class: 'about-task' });
    this.element = element('aside', { class: 'details', 'aria-label': 'Details' }, this.head);
    this.shown = null;
    this.isStale = false;
    this.ticket = 0;
  }

  // The run goes on: draw again what has changed, and leave the rest as the reader has it.
  changed() {
    this.isStale = true;
  }

  draw() {
    const row = this.viewer.rows[this.viewer.place] ?? null;
    const key = row === null ? null : `${row.kind}${row.key}`;
    const isOther = key !== this.shown;
    if (!isOther && !this.isStale) return;
    this.shown = key;
    this.isStale = false;
    if (isOther) {
      this.ticket += 1;
      this.element.scrollTop = 0;
      fill(this.head);
    }
    if (row === null) patch(this.head, [element('p', { class: 'hint' }, 'Nothing is selected.')]);
    else patch(this.head, row.kind === 'task' ? this.task(row.number) : this.group(row));
    if (isOther) fill(this.element, this.head, row?.kind === 'task' ? this.transcript(row.number) : null);
  }

  task(number) {
    const { model, viewer } = { model: this.viewer.model, viewer: this.viewer };
    const { glyph, word, group } = describe(model.status[number]);
    const facts = [word, model.models[number], `depth ${model.depth[number]}`];
    if (model.mode[number] !== 'root') facts.push(model.shownMode(number));
    return [
      element('h2', {}, element('span', { class: `glyph ${group}`, 'aria-hidden': 'true' }, glyph), ' ',
        element('span', { class: 'agent' }, oneLine(model.agent[number], 60)), ' ',
        oneLine(model.label[number] || '', 120)),
      element('p', { class: 'facts' }, element('code', {}, model.ids[number]), ' · ',
        facts.filter(Boolean).join(' · ')),
      this.path(number),
      viewer.critical.has(number)
        ? element('p', { class: 'facts' }, 'On the critical path: whatever makes it shorter makes the run shorter.')
        : null,
      model.error[number]
        ? element('p', { class: `error ${group}`, dir: 'auto' }, printable(model.error[number])) : null,
      ...(viewer.live?.asks(number) ?? []),
      model.asks[number] ? this.ask(model.asks[number]) : null,
      this.numbers(number),
      this.actions(number),
      this.about(number),
      ...(viewer.live?.sections(number) ?? []),
    ];
  }

  path(number) {
    const { model, viewer } = { model: this.viewer.model, viewer: this.viewer };
    const steps = [];
    for (let above = model.parent[number]; above >= 0; above = model.parent[above]) {
      const target = above;
      steps.unshift(element('button', {
        class: 'link', type: 'button', onclick: () => viewer.reveal(target),
        title: model.path[above],
      }, oneLine(model.path[above].slice(model.path[above].lastIndexOf('/') + 1), 40)));
    }
    if (!steps.length) return null;
    return element('nav', { class: 'path', 'aria-label': 'Above it' },
      ...steps.flatMap((step) => [step, element('span', { 'aria-hidden': 'true' }, ' › ')]),
      element('span', {}, oneLine(model.path[number].slice(model.path[number].lastIndexOf('/') + 1), 40)));
  }

  ask(words) {
    return element('div', { class: 'ask' }, element('h3', {}, '! Approval needed'),
      element('pre', {}, printable(words)));
  }

  numbers(number) {
    const { model, rollups } = this.viewer;
    const own = (field) => model.ofOwn(number, field);
    const all = (field) => model.ofTotal(number, field);
    const rows = [
      ['tokens read', tokens(own(INPUT), own(ESTIMATED)), tokens(all(INPUT), all(ESTIMATED))],
      ['tokens written', tokens(own(OUTPUT), own(ESTIMATED)), tokens(all(OUTPUT), all(ESTIMATED))],
      ['cost', exactMoney(own(COST), model.unknownOwn(number)), exactMoney(all(COST), model.unknownTotal(number))],
      ['model calls', count(own(CALLS)), count(all(CALLS))],
    ];
    if (all(CACHED) || all(SAVED)) {
      rows.push(['read from a cache', cached(own(CACHED), own(INPUT), own(SAVED)),
        cached(all(CACHED), all(INPUT), all(SAVED))]);
    }
    if (all(REASONING)) rows.push(['reasoning', tokens(own(REASONING)), tokens(all(REASONING))]);
    if (all(UNPRICED)) rows.push(['without a price', count(own(UNPRICED)), count(all(UNPRICED))]);
    if (all(ESTIMATED)) rows.push(['broken off, estimated', count(own(ESTIMATED)), count(all(ESTIMATED))]);
    const seconds = model.seconds(number);
    const begun = rollups.final[number] > rollups.first[number];
    rows.push(
      ['time', seconds === null ? 'not started' : duration(seconds),
        begun ? duration(rollups.final[number] - rollups.first[number]) : '–'],
      ...(rollups.waited[number]
        ? [['waiting for the provider', duration(model.waited(number)), duration(rollups.waited[number])]] : []),
      ['agents', '1', count(rollups.tasks[number])],
      // A tree alone does not know them.
      ...(model.tools[number] === null ? [] : [['tool calls', count(model.tools[number]), '']]),
    );
    for (const group of ['waiting', 'running', 'failed']) {
      if (!rollups.groups[group][number]) continue;
      const { glyph, word } = GROUPS[group];
      rows.push([`${glyph} ${word}`, rollups.own[number] === group ? '1' : '0',
        count(rollups.groups[group][number])]);
    }
    return table(['', 'own', 'subtree'], rows);
  }

  actions(number) {
    const { viewer } = this;
    return element('div', { class: 'actions' },
      ...(viewer.live?.actions(number) ?? []),
      element('button', { type: 'button', onclick: () => viewer.zoomTo(number), title: 'Zoom time to it and all below it' }, 'Zoom'),
      element('button', { type: 'button', onclick: (event) => copy(viewer.model.ids[number], event.target) }, 'Copy id'));
  }

  about(number) {
    const { model } = this.viewer;
    const started = model.started[number];
    const waited = started === null ? null : started - model.requested[number];
    const lines = [];
    const goal = model.script(number)?.code ?? model.goal[number];
    if (goal && goal !== model.label[number]) {
      lines.push([model.script(number) ? 'script' : 'goal', shortened(goal)]);
    }
    if (model.reason[number]) {
      const why = REASONS[model.reason[number]] ?? model.reason[number];
      lines.push([model.shownMode(number), `because ${why}`]);
    }
    if (model.chosen[number]) lines.push(['chosen', oneLine(model.chosen[number], 200)]);
    if (model.needs[number].length) lines.push(['needed', model.needs[number].join(', ')]);
    const at = new Date(model.requested[number] * 1000);
    lines.push(['asked', `${at.toISOString().replace('T', ' ').slice(0, 19)} UTC${
      waited !== null && waited >= 0.05 ? `, begun ${duration(waited)} later` : ''}`]);
    return element('dl', {}, ...lines.flatMap(([name, words]) => [
      element('dt', {}, name), element('dd', { dir: 'auto' }, words)]));
  }

  transcript(number) {
    if (this.viewer.live) return this.viewer.live.transcript(number);
    const section = element('section', { class: 'transcript', 'aria-label': 'Transcript', tabindex: 0 },
      element('h3', {}, 'Transcript'));
    const { transcripts } = this.viewer;
    if (!transcripts.has(this.viewer.model.ids[number])) {
      section.append(element('p', { class: 'hint' }, ...transcripts.why(this.viewer.model, number)));
      return section;
    }
    const { ticket } = this;
    transcripts.read(this.viewer.model.ids[number]).then((messages) => {
      if (ticket === this.ticket) section.append(...chat(messages));
    });
    return section;
  }

  group(row) {
    const { model, rollups } = this.viewer;
    const sum = (of) => row.members.reduce((total, member) => total + of(member), 0);
    const agents = sum((member) => rollups.tasks[member]);
    const rows = [
      ['tokens',
        tokens(sum((it) => model.ofOwn(it, INPUT) + model.ofOwn(it, OUTPUT)), sum((it) => model.ofOwn(it, ESTIMATED))),
        tokens(sum((it) => model.tokens(it)), sum((it) => model.ofTotal(it, ESTIMATED)))],
      ['cost', exactMoney(sum((it) => model.ofOwn(it, COST)), sum((it) => model.unknownOwn(it))),
        exactMoney(sum((it) => model.ofTotal(it, COST)), sum((it) => model.unknownTotal(it)))],
      ['agents', count(row.members.length), count(agents)],
    ];
    for (const [group, { glyph, word }] of Object.entries(GROUPS)) {
      const all = sum((member) => rollups.groups[group][member]);
      if (!all) continue;
      const own = sum((member) => (rollups.own[member] === group ? 1 : 0));
      rows.push([`${glyph} ${word}`, count(own), count(all)]);
    }
    return [
      element('h2', {}, element('span', { class: 'agent' }, oneLine(row.agent, 60)), ` ×${count(row.members.length)}`),
      element('p', { class: 'facts' },
        `${row.kind === 'more' ? 'The others of' : 'Siblings of'} one agent below ${oneLine(model.path[row.parent], 200)}`),
      table(['', 'these', 'with all below'], rows),
      element('p', { class: 'hint' }, row.isExpanded ? 'Left folds it.' : 'Right or Enter opens it.'),
    ];
  }
}

function table(head, rows) {
  return element('table', {},
    element('thead', {}, element('tr', {}, ...head.map((words) =>
      (words ? element('th', { scope: 'col' }, words) : element('td', {}))))),
    element('tbody', {}, ...rows.map(([name, ...cells]) => element('tr', {},
      element('th', { scope: 'row' }, name),
      ...cells.map((words) => element('td', {}, words))))));
}

function shortened(text) {
  const clean = printable(text);
  const lines = clean.split('\n');
  if (lines.length <= SHORT_LINES && clean.length <= SHORT_CHARACTERS) return clean;
  const short = lines.slice(0, SHORT_LINES).join('\n').slice(0, SHORT_CHARACTERS);
  const holder = element('span', {}, short, '… ');
  holder.append(element('button', {
    class: 'link', type: 'button', onclick: () => fill(holder, clean),
  }, `show all ${count(clean.length)} characters`));
  return holder;
}

// As many messages as are read at once; more when they are asked for.
function chat(messages) {
  const list = new MessageList();
  messages.slice(0, AT_ONCE).forEach((it) => list.add(it));
  if (messages.length <= AT_ONCE) return [list.element];
  const button = element('button', {
    class: 'link', type: 'button',
    onclick: () => {
      messages.slice(AT_ONCE).forEach((it) => list.add(it));
      button.remove();
    },
  }, `show ${counted(messages.length - AT_ONCE, 'more message')}`);
  return [list.element, button];
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = text;
  }
}
