// Conversations: ask, see the answer as it is written, and see the tasks in the background beside it.
//
// The session lives on the server. A closed tab, a sleep or a restart of the server loses nothing: all of
// it is read again. What is typed and not sent is kept for each conversation.

import { element, fill, patch } from '../run/dom.js';
import { counted, duration, money, oneLine } from '../run/format.js';
import { describe } from '../run/status.js';
import { newKey } from './api.js';
import { approvalBox } from './actions.js';
import { Composer } from './composer.js';
import { Conversation } from './conversation.js';
import { address } from './router.js';
import { applyRows } from './run_rows.js';

const LISTED = 100;

export class ChatPage {
  constructor(console_) {
    this.console = console_;
    this.sessions = new Map();
    this.search = element('input', { type: 'search', placeholder: 'Search conversations', 'aria-label': 'Search conversations', oninput: () => this.drawList() });
    this.agents = element('select', { 'aria-label': 'Agent' }, ...Object.entries(console_.me.agents).map(([name, problem]) =>
      element('option', { value: name, disabled: Boolean(problem), title: problem || null }, name)));
    this.begin = element('button', { type: 'button', class: 'chip', disabled: !console_.may('run'), onclick: () => this.create() }, 'New chat');
    this.list = element('nav', { class: 'sessions', 'aria-label': 'Conversations' });
    this.head = element('header', { class: 'chat-head' });
    this.scroller = element('div', { class: 'chat-scroll', tabindex: 0, role: 'log', 'aria-label': 'Conversation' });
    this.asks = element('div', { class: 'chat-asks' });
    this.composer = new Composer(console_, { send: (message) => this.send(message), stop: () => this.cancel() });
    this.children = element('aside', { class: 'children', 'aria-label': 'Tasks of this conversation' });
    this.conversation = new Conversation(console_, this.scroller, { names: { user: 'you' } });
    this.scroller.append(element('h2', { class: 'unseen' }, 'Messages'), this.conversation.element, this.asks);
    this.main = element('section', { class: 'chat-main' }, this.head, this.scroller, this.composer.element);
    this.empty = element('p', { class: 'empty' }, 'Choose a conversation, or begin one. It goes on while this page is closed.');
    this.element = element('main', { class: 'chat' },
      element('div', { class: 'chat-list' }, element('div', { class: 'chat-new' }, this.agents, this.begin), this.search, this.list),
      this.main, this.children);
    this.boxes = new Map();
    this.session = null;
  }

  show(route) {
    this.isShown ??= this.watch();
    const session = route.params.session ?? null;
    if (session !== this.session) this.open(session);
  }

  watch() {
    const { live, inbox } = this.console;
    const stops = [live.watch('runs', (message) => this.receiveRuns(message)), inbox.listen(() => this.drawAsks())];
    this.readList();
    return () => stops.forEach((stop) => stop());
  }

  hide() {
    this.isShown?.();
    this.isShown = null;
    this.open(null);
  }

  async readList() {
    try {
      const page = await this.console.api.get(`v1/runs?limit=${LISTED}`);
      for (const run of page.data) if (run.kind === 'session') this.sessions.set(run.id, run);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
    this.drawList();
  }

  receiveRuns({ runs = [], deleted = [] }) {
    for (const run of runs) if (run.kind === 'session') this.sessions.set(run.id, run);
    for (const id of deleted) this.sessions.delete(id);
    this.drawList();
    if (this.session) this.drawHead();
  }

  open(session) {
    this.stopRows?.();
    this.stopRows = null;
    this.conversation.close();
    this.session = session;
    this.model = null;
    this.boxes.clear();
    this.composer.open(session);
    this.element.dataset.open = session ? 'yes' : 'no';
    this.main.replaceChildren(...(session ? [this.head, this.scroller, this.composer.element] : [this.empty]));
    fill(this.children);
    this.drawList();
    if (!session) return;
    this.conversation.open(session, { follow: true });
    this.stopRows = this.console.live.watch(`run:${session}`, (message) => this.receiveRows(message));
    this.drawHead();
    this.drawAsks();
    this.composer.focus();
  }

  receiveRows(message) {
    if (message.error) {
      fill(this.main, element('p', { class: 'empty' }, message.error));
      return;
    }
    ({ model: this.model } = applyRows(this.model, message));
    if (message.more) return;
    this.isWorking = message.working;
    const isAnswering = ['running', 'quiet'].includes(this.model.status[0]);
    this.composer.isBusy = isAnswering || this.model.status[0] === 'waiting';
    this.drawChildren();
    this.drawHead();
    if (!isAnswering) this.console.inbox.read().then(() => this.console.inbox.take(this.session));
  }

  title(run) {
    return oneLine(run?.metadata?.title || run?.about || 'New conversation', 80);
  }

  drawList() {
    const words = this.search.value.trim().toLowerCase();
    const runs = [...this.sessions.values()].filter((run) => `${this.title(run)} ${run.agent}`.toLowerCase().includes(words))
      .sort((one, other) => other.created - one.created);
    const unread = new Set(this.console.inbox.replies.map((it) => it.session));
    patch(this.list, runs.map((run) => element('a', {
      href: address(['chat', run.id]), 'aria-current': run.id === this.session ? 'page' : null,
    }, element('b', {}, this.title(run)), element('small', {}, `${run.agent} · ${{ in_progress: '◐ at work', waiting: '! waiting' }[run.status] ?? 'idle'}`),
    unread.has(run.id) && run.id !== this.session ? element('span', { class: 'number-badge' }, 'new') : null)));
    if (!runs.length) fill(this.list, element('p', { class: 'hint' }, words ? 'Nothing is found.' : 'No conversation yet.'));
  }

  drawHead() {
    const run = this.sessions.get(this.session);
    const { usage } = run ?? {};
    const cost = usage && usage.cost ? money(usage.cost, usage.unpriced + usage.estimated) : '';
    patch(this.head, [
      element('a', { class: 'chip back', href: '#/chat' }, '‹'),
      element('h1', {}, this.title(run)),
      element('span', { class: 'hint' }, run ? oneLine(run.agent, 40) : ''), element('span', { class: 'space' }),
      element('span', { class: 'hint' }, cost),
      element('a', { class: 'chip', href: address(['runs', this.session]) }, 'Tree'),
      this.console.may('steer') ? element('button', { type: 'button', class: 'chip danger', onclick: () => this.remove() }, 'Delete') : null,
    ]);
  }

  // The delegated tasks of the conversation: those at work first, then the newest.
  drawChildren() {
    const { model } = this;
    const tasks = model.ids.map((_, number) => number).slice(1)
      .sort((one, other) => (model.ended[one] === null ? 0 : 1) - (model.ended[other] === null ? 0 : 1) || other - one).slice(0, 60);
    this.children.hidden = !tasks.length;
    const now = this.console.now();
    patch(this.children, [
      element('h2', {}, counted(model.size - 1, 'task')),
      ...tasks.map((number) => {
        const { glyph, word, group } = describe(model.status[number]);
        const started = model.started[number];
        const time = started === null ? '' : duration((model.ended[number] ?? now) - started);
        return element('a', { href: address(['runs', this.session, 'tasks', model.ids[number]]), class: `child ${model.mode[number] === 'detached' ? 'dashed' : ''}` },
          element('span', { class: `glyph ${group}`, title: word }, glyph), element('b', {}, oneLine(model.agent[number], 40)),
          element('span', { class: 'about' }, oneLine(model.name(number), 120)), element('small', {}, `${word} · ${time}`));
      }),
    ]);
  }

  drawAsks() {
    const mine = this.console.inbox.approvals.filter((it) => it.run === this.session);
    patch(this.asks, mine.map((it) => {
      if (!this.boxes.has(it.id)) this.boxes.set(it.id, approvalBox(this.console, it));
      return this.boxes.get(it.id);
    }));
    this.drawList();
    if (mine.length) this.conversation.grown();
  }

  async create() {
    try {
      const { id } = await this.console.api.post('v1/sessions', { model: this.agents.value });
      await this.readList();
      this.console.router.go(['chat', id]);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  // Return whether the server has it: what was not sent stays in the composer.
  async send({ text, parts }) {
    const { session } = this;
    const key = newKey();
    try {
      const { message } = await this.console.api.post(`v1/sessions/${session}/messages`, { text, parts }, key);
      if (session === this.session) this.conversation.expect({ id: message, text });
      return true;
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
      return false;
    }
  }

  // Stop the turn: what was said so far stays.
  async cancel() {
    try {
      await this.console.api.post(`v1/tasks/${this.session}/cancel`);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  async remove() {
    if (!window.confirm('Delete this conversation? What still works in it is cancelled.')) return;
    try {
      await this.console.api.remove(`v1/runs/${this.session}`);
      this.sessions.delete(this.session);
      this.console.router.go('chat');
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }
}
