// One run, live: the report's viewer, fed by the rows of the server, with what people can do to it.

import { element, fill } from '../run/dom.js';
import { count, duration, money, oneLine } from '../run/format.js';
import { COST } from '../run/model.js';
import { progressOf } from '../run/progress.js';
import { Viewer } from '../run/viewer.js';
import { answer, approvalBox, cancelDialog, messageDialog } from './actions.js';
import { boardSection } from './board.js';
import { Conversation } from './conversation.js';
import { EvidenceReader } from './evidence.js';
import { applyRows, lastMoment } from './run_rows.js';
import { canRetry, forkDialog, resumeDialog, retryDialog, setPaused } from './verbs.js';

const ACTIVE = ['running', 'waiting', 'queued', 'interrupted'];
const OPEN_AFTER = 120; // milliseconds: who moves through rows reads none of them
const SECOND = 1000;

export class RunPage {
  constructor(console_) {
    this.console = console_;
    this.element = element('div', { class: 'run-page' });
    this.run = null;
  }

  show(route) {
    const { run, task } = route.params;
    this.wanted = { task: task ?? null, view: route.query.get('view') ?? 'tree' };
    if (run !== this.run) this.open(run);
    else this.follow();
  }

  open(run) {
    this.hide();
    this.run = run;
    this.model = null;
    this.viewer = null;
    this.seq = 0;
    this.receipts = new EvidenceReader(this.console, () => this.changedDetails());
    this.boxes = new Map(); // approval id to its box: what is typed there stays
    fill(this.element, element('p', { class: 'empty' }, 'Reading the run …'));
    const { live, inbox } = this.console;
    const stops = [
      live.watch(`run:${run}`, (message) => this.receive(message)),
      inbox.listen(() => this.changedApprovals()),
    ];
    this.timer = setInterval(() => this.tick(), SECOND / 2);
    this.stop = () => stops.forEach((stop) => stop());
  }

  hide() {
    this.stop?.();
    this.stop = null;
    this.conversation?.close();
    clearInterval(this.timer);
    clearTimeout(this.opening);
    this.run = null;
  }

  receive(message) {
    if (message.error) {
      fill(this.element, element('p', { class: 'empty' }, message.error));
      return;
    }
    const { model, isNew, hasGrown } = applyRows(this.model, message);
    this.model = model;
    if (message.more) {
      this.isIncomplete ||= isNew;
      return;
    }
    const isOther = isNew || this.isIncomplete;
    this.isIncomplete = false;
    this.seq = message.seq;
    this.isWorking = message.working;
    this.budgets = message.budgets;
    this.toCome = message.to_come;
    this.state = { ...message.state, paused: new Set(message.state.paused) };
    this.setTime(message.at);
    if (isOther) this.build();
    else this.viewer.changed({ hasGrown, isOver: !this.isWorking });
  }

  get approvals() {
    return this.console.inbox.approvals.filter((it) => it.run === this.run);
  }

  changedApprovals() {
    const open = new Set(this.approvals.map((it) => it.id));
    for (const id of this.boxes.keys()) if (!open.has(id)) this.boxes.delete(id);
    this.changedDetails();
  }

  changedDetails() {
    if (!this.viewer) return;
    this.viewer.details.changed();
    this.viewer.draw();
  }

  // Its evidence, and the board of its tasks, or the board that it shares with its siblings.
  sections(number) {
    const { ids, parent, ended } = this.model;
    const board = this.state.boards[ids[number]] ?? this.state.boards[ids[parent[number]]];
    return [this.receipts.section(ids[number], ended[number]), board ? boardSection(board) : null];
  }

  setTime(now) {
    this.model.last = this.isWorking ? Math.max(now, this.model.start) : lastMoment(this.model);
  }

  tick() {
    if (!this.viewer || !this.isWorking || this.console.live.state !== 'live') return;
    this.setTime(this.console.now());
    this.viewer.changed({ hasGrown: false });
  }

  build() {
    const { model } = this;
    const before = this.viewer;
    this.viewer = new Viewer(model, { title: oneLine([model.agent[0], model.name(0)].filter(Boolean).join(': '), 120), live: this, drawn: () => this.drawn() });
    this.conversation?.close();
    this.conversation = new Conversation(this.console, this.viewer.details.element);
    fill(this.element, this.viewer.element);
    this.viewer.collapseToFit();
    // After a restart of the server the reader is where they were.
    if (before?.active && model.numbers.has(before.active)) this.wanted.task = before.active;
    this.follow();
    this.viewer.drawNow();
    if (document.activeElement === document.body) this.viewer.grid.focus();
  }

  // Show the task and the view that the address names.
  follow() {
    if (!this.viewer) return;
    const { task, view } = this.wanted;
    if (view !== this.viewer.tab) this.viewer.showTab(view);
    const number = this.model.numbers.get(task);
    if (number !== undefined && this.viewer.active !== task) this.viewer.reveal(number, { quietly: true });
  }

  redraw() {
    this.viewer?.draw();
  }

  // --- what the viewer asks for

  // The viewer was drawn: the address says what is selected.
  drawn() {
    const { selected, tab } = this.viewer;
    if (!this.run || this.console.page !== this) return;
    const task = selected ? this.model.ids[selected] : null;
    this.console.router.note(['runs', this.run, ...(task ? ['tasks', task] : [])], { view: tab === 'tree' ? '' : tab });
    this.wanted = { task, view: tab };
  }

  // A question to a person is the status of the whole run, whatever else runs.
  status() {
    const isWaiting = this.isWorking && this.groups?.waiting[0];
    return isWaiting ? { glyph: '!', word: 'waiting for you', group: 'waiting' } : null;
  }

  get groups() {
    return this.viewer?.rollups?.groups;
  }

  // Whether the time goes on: not while the run waits for a person, is paused or cannot be seen.
  get hasPace() {
    return this.isWorking && !this.groups?.waiting[0] && !this.state.paused.size && this.console.live.state === 'live';
  }

  header() {
    const { rollups, model } = this.viewer ?? {};
    const { process } = this.state;
    const parts = process ? [element('span', { class: 'badge process', title: 'Another process of this machine runs it. Your actions are sent to that process.' }, `in another process (${process})`)] : [];
    if (this.model.size > 1) parts.push(this.progress());
    parts.push(...(this.budgets ?? []).map((it) => this.budget(it)).filter(Boolean).slice(0, 2));
    parts.push(...this.runVerbs());
    parts.push(element('a', { class: 'chip', href: `v1/runs/${this.run}/tree?format=html`, download: `${this.run}.html`, title: 'One file that needs no server' }, 'Save as report'));
    if (rollups && model && this.isWorking && this.console.may('steer')) {
      parts.push(element('button', { type: 'button', class: 'chip danger', onclick: () => this.cancel(0) }, 'Cancel run'));
    }
    return parts;
  }

  // Where it comes from, and what can be done to the whole run.
  runVerbs() {
    const { interrupted, forked_from: link, paused } = this.state;
    const [run, task] = link.split('/');
    const isPaused = paused.has(this.run);
    const held = isPaused ? 'paused' : `${count(paused.size)} paused`;
    return [
      link && element('a', { class: 'chip', href: `#/runs/${run}/tasks/${task}`, title: 'Where this run parts from the other one' }, 'fork of another run'),
      this.isWorking && paused.size > 0 && element('span', { class: 'state waiting', title: 'No new task starts there; what runs goes on' }, `‖ ${held}`),
      this.isWorking && this.console.may('steer') && element('button', { type: 'button', class: 'chip', title: 'Of new tasks; what runs goes on', onclick: () => this.pause(0) }, isPaused ? 'Unpause' : 'Pause starts'),
      interrupted && this.console.may('run') && element('button', { type: 'button', class: 'chip primary', onclick: () => this.resume() }, 'Resume run'),
    ].filter(Boolean);
  }

  // How many of the tasks that are known of have ended, and when the others will at this pace.
  progress() {
    const { ended, known, secondsLeft } = progressOf(this.model, this.toCome);
    const left = this.hasPace && secondsLeft !== null ? ` · about ${duration(secondsLeft)} left` : '';
    return element('span', { class: 'progress', title: 'Tasks that have ended, of those that were asked for or will be; agents may ask for more' },
      element('progress', { max: known, value: ended, 'aria-label': 'Tasks that have ended' }), `${count(ended)} of ${count(known)}${left}`);
  }

  budget({ limits, used }) {
    const kinds = [['usd', used.micro_usd / 1e6, (it) => money(it * 1e6, 0)], ['tokens', used.tokens, count], ['calls', used.calls, count], ['tasks', used.tasks, count]];
    const found = kinds.find(([kind]) => limits[kind] !== null && limits[kind] !== undefined);
    if (!found) return null;
    const [kind, amount, words] = found;
    const share = limits[kind] ? amount / limits[kind] : 1;
    return element('span', { class: `gauge ${share >= 0.8 ? 'waiting' : ''}`, title: `Budget${limits.name ? ` ${limits.name}` : ''}: ${kind}` },
      element('meter', { min: 0, max: limits[kind] || 1, value: amount, 'aria-label': `Budget of ${kind}` }), `${words(amount)} of ${words(limits[kind])}`);
  }

  asks(number) {
    const id = this.model.ids[number];
    return this.approvals.filter((it) => it.task === id).map((it) => {
      if (!this.boxes.has(it.id)) this.boxes.set(it.id, approvalBox(this.console, it, { keys: true }));
      return this.boxes.get(it.id);
    });
  }

  actions(number) {
    const isActive = this.activeBelow(number) > 0;
    const may = this.console.may('steer');
    const why = may ? 'It has ended' : 'Your key may not steer';
    const isRunning = this.model.ended[number] === null;
    const button = (words, does, isOn, title) => element('button', { type: 'button', disabled: !(may && isOn), title: may && isOn ? title : why, onclick: does }, words);
    return [
      button('Message (m)', () => this.message(number), isRunning, 'It is read before the next model call'),
      button(this.state.paused.has(this.model.ids[number]) ? 'Unpause (p)' : 'Pause starts (p)', () => this.pause(number), isRunning && isActive, 'Of new tasks below it; what runs goes on'),
      button('Cancel subtree (x)', () => this.cancel(number), isActive, 'This task and all below it'),
      ...this.beginVerbs(number),
    ];
  }

  // What begins a new run with what this one has.
  beginVerbs(number) {
    const why = !this.console.may('run') ? 'Your key may not begin runs'
      : this.isWorking ? 'The run has not ended'
        : this.state.process ? `Process ${this.state.process} still writes its journal` : '';
    const button = (words, does, title) => element('button', { type: 'button', disabled: Boolean(why), title: why || title, onclick: does }, words);
    return [
      number === 0 && this.state.interrupted && button('Resume', () => this.resume(), 'From its last step'),
      canRetry(this.model.status[number]) && button('Retry', () => retryDialog(this.console, this.about(number)), 'In a new run that has all else of this one'),
      button('Fork from here', () => forkDialog(this.console, this.about(number)), 'A new run goes on live from where this was asked for'),
    ].filter(Boolean);
  }

  transcript(number) {
    clearTimeout(this.opening);
    this.opening = setTimeout(() => this.conversation.open(this.model.ids[number]), OPEN_AFTER);
    return this.conversation.element;
  }

  letters() {
    const on = (does) => () => this.viewer.selected !== null && does(this.viewer.selected);
    return {
      a: on((number) => this.answer(number, 'once')),
      d: on((number) => this.answer(number, 'deny')),
      m: on((number) => this.console.may('steer') && this.model.ended[number] === null && this.message(number)),
      p: on((number) => this.console.may('steer') && this.model.ended[number] === null && this.pause(number)),
      x: on((number) => this.console.may('steer') && this.activeBelow(number) && this.cancel(number)),
    };
  }

  // --- what people do

  activeBelow(number) {
    const { groups } = this.viewer.rollups;
    return ACTIVE.reduce((sum, group) => sum + groups[group][number], 0);
  }

  answer(number, verdict) {
    const id = this.model.ids[number];
    const approval = this.approvals.find((it) => it.task === id);
    if (!approval) {
      this.console.shell.say('This task asks nothing. w goes to the next one that waits.');
      return;
    }
    const reason = this.boxes.get(approval.id)?.querySelector('input')?.value ?? '';
    answer(this.console, approval, verdict, verdict === 'deny' ? reason : '');
  }

  message(number) {
    messageDialog(this.console, this.model.ids[number], this.model.agent[number]);
  }

  about(number) {
    const { model, viewer } = this;
    return {
      id: model.ids[number],
      name: `${model.agent[number]} ${model.name(number)}`,
      tasks: viewer.rollups.tasks[number],
      cost: model.ofTotal(number, COST),
      unknown: model.unknownTotal(number),
      isRun: number === 0,
    };
  }

  pause(number) {
    const { id, name } = this.about(number);
    setPaused(this.console, { id, name, paused: !this.state.paused.has(id) });
  }

  resume() {
    resumeDialog(this.console, { run: this.run, ...this.about(0) });
  }

  cancel(number) {
    const { model, viewer } = this;
    cancelDialog(this.console, {
      id: number ? model.ids[number] : this.run,
      name: `${model.agent[number]} ${model.name(number)}`,
      active: this.activeBelow(number),
      all: viewer.rollups.tasks[number],
      cost: model.ofTotal(number, COST),
      unknown: model.unknownTotal(number),
      isRun: number === 0,
    });
  }
}

