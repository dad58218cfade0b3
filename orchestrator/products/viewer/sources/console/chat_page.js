// Conversations: ask, see the answer as it is written, and see the tasks in the background beside it.
//
// The session lives on the server. A closed tab, a sleep or a restart of the server loses nothing: all of
// it is read again. What is typed and not sent is kept for each conversation.

import { element, fill, patch } from '../run/dom.js';
import { counted, duration, money, oneLine, printable } from '../run/format.js';
import { describe } from '../run/status.js';
import { approvalBox, deleteDialog } from './actions.js';
import { ChatList } from './chat_list.js';
import { Composer } from './composer.js';
import { Conversation } from './conversation.js';
import { address } from './router.js';
import { applyRows } from './run_rows.js';

const MOST_CHILDREN = 60;
const ENDED_BADLY = ['failed', 'timed_out', 'over_budget', 'refused', 'lost'];

export class ChatPage {
  constructor(console_) {
    this.console = console_;
    this.list = new ChatList(console_, (deleted) => this.listChanged(deleted));
    this.head = element('header', { class: 'chat-head' });
    this.scroller = element('div', { class: 'chat-scroll', tabindex: 0, role: 'log', 'aria-label': 'Conversation' });
    this.asks = element('div', { class: 'chat-asks' });
    this.ending = element('p', { class: 'chat-ending', role: 'status' });
    this.composer = new Composer(console_, { send: (message) => this.send(message), stop: () => this.cancel() });
    this.children = element('aside', { class: 'children', 'aria-label': 'Tasks of this conversation', tabindex: 0, hidden: true });
    this.conversation = new Conversation(console_, this.scroller, { names: { user: 'you' } });
    this.scroller.append(element('h2', { class: 'unseen' }, 'Messages'), this.conversation.element, this.ending, this.asks);
    this.main = element('section', { class: 'chat-main' });
    this.empty = element('p', { class: 'empty' }, 'Choose a conversation, or begin one. It goes on while this page is closed.');
    this.element = element('main', { class: 'chat' }, this.list.element, this.main, this.children);
    this.composer.takeDropped(this.main);
    this.boxes = new Map(); // approval id to its box: what is typed there stays
    this.session = null;
    document.addEventListener('visibilitychange', () => this.takeReplies());
  }

  show(route) {
    this.list.show();
    this.stop ??= this.console.inbox.listen(() => this.inboxChanged());
    this.timer ??= setInterval(() => this.tick(), 1000);
    const session = route.params.session ?? null;
    if (session !== this.session || !this.main.firstChild) this.open(session);
  }

  hide() {
    this.list.hide();
    this.stop?.();
    this.stop = null;
    clearInterval(this.timer);
    this.timer = null;
    this.open(null);
  }

  open(session) {
    this.stopRows?.();
    this.stopRows = null;
    this.conversation.close();
    this.session = session;
    this.model = null;
    this.renaming = null;
    this.boxes.clear();
    this.composer.open(session);
    this.element.dataset.open = session ? 'yes' : 'no';
    fill(this.main, ...(session ? [this.head, this.scroller, this.composer.element] : [this.empty]));
    fill(this.children);
    fill(this.ending);
    this.children.hidden = true;
    this.list.select(session);
    if (!session) return;
    this.conversation.open(session, { follow: true });
    this.stopRows = this.console.live.watch(`run:${session}`, (message) => this.receiveRows(message));
    this.drawHead();
    this.inboxChanged();
    this.composer.focus();
  }

  listChanged(deleted) {
    if (!this.session) return;
    if (deleted.includes(this.session)) this.console.router.go('chat');
    else this.drawHead();
  }

  receiveRows(message) {
    if (message.error) {
      fill(this.main, element('p', { class: 'empty' }, printable(message.error)));
      return;
    }
    ({ model: this.model } = applyRows(this.model, message));
    if (message.more) return;
    this.composer.isBusy = this.isInTurn;
    this.drawChildren();
    this.drawHead();
    this.drawEnding();
  }

  get isInTurn() {
    const turn = this.model?.turns?.at(-1);
    return Boolean(turn) && turn[1] === null;
  }

  inboxChanged() {
    this.drawAsks();
    this.list.draw();
    this.takeReplies();
  }

  // What a person sees here is taken out of the inbox: not what comes while the tab is hidden, and
  // nothing before it is on the page.
  async takeReplies() {
    const { session, conversation } = this;
    const { inbox } = this.console;
    const isNew = () => session && session === this.session && !document.hidden && inbox.replies.some((it) => it.session === session);
    if (!isNew()) return;
    await conversation.receive({ messages: true });
    if (isNew() && !conversation.isBehind) await inbox.take(session);
  }

  drawHead() {
    const session = this.list.selected;
    const { usage } = session ?? {};
    const cost = usage && usage.micro_usd ? money(usage.micro_usd, usage.unpriced + usage.estimated) : '';
    const may = (scope, words, title, act, kind = '') => (this.console.may(scope)
      ? element('button', { type: 'button', class: `chip ${kind}`, title, 'aria-label': title, 'data-own': title, onclick: act }, words) : null);
    patch(this.head, [
      element('a', { class: 'chip back', href: '#/chat', 'aria-label': 'All conversations' }, '‹'),
      this.renaming ?? element('h1', {}, this.list.title(session)),
      element('span', { class: 'hint' }, session ? oneLine(session.agent, 40) : ''), element('span', { class: 'space' }),
      element('span', { class: 'hint' }, cost),
      this.renameButton ??= may('run', '✎', 'Rename', () => this.rename()),
      element('a', { class: 'chip', href: address(['runs', this.session]) }, 'Tree'),
      this.deleteButton ??= may('steer', 'Delete', 'Delete', () => this.remove(), 'danger'),
    ]);
  }

  // Enter renames; Escape, or going elsewhere, leaves it as it is.
  rename() {
    const { session } = this;
    const end = () => {
      this.renaming = null;
      this.drawHead();
    };
    const title = element('input', { type: 'text', maxlength: 200, 'aria-label': 'Title', placeholder: 'As it begins',
      onkeydown: (event) => event.key === 'Escape' && end(), onblur: () => this.renaming && end() });
    title.value = this.list.selected?.metadata?.title || this.list.title(this.list.selected);
    this.renaming = element('form', { class: 'rename', 'data-own': 'rename', onsubmit: (event) => {
      event.preventDefault();
      this.renaming = null;
      this.list.rename(session, title.value.trim());
    } }, title);
    this.drawHead();
    title.select();
  }

  // How the last turn has ended, if it was not by an answer.
  drawEnding() {
    const [status] = this.model.status;
    const isOver = !this.isInTurn && this.model.turns?.length;
    const words = isOver && status === 'cancelled' ? 'Stopped. What was said so far stays.'
      : isOver && ENDED_BADLY.includes(status) ? `${describe(status).word}: ${this.model.error[0] || 'no reason is known'}` : '';
    this.ending.className = `chat-ending ${status === 'cancelled' ? '' : 'failed'}`;
    if (this.ending.textContent === words) return;
    fill(this.ending, printable(words));
    this.conversation.grown();
  }

  tick() {
    if (this.model?.ended.some((it, number) => number && it === null)) this.drawChildren();
  }

  // The delegated tasks of the conversation: those at work first, then the newest.
  drawChildren() {
    const { model } = this;
    const tasks = model.ids.map((_, number) => number).slice(1)
      .sort((one, other) => (model.ended[one] === null ? 0 : 1) - (model.ended[other] === null ? 0 : 1) || other - one).slice(0, MOST_CHILDREN);
    this.children.hidden = !tasks.length;
    const now = this.console.now();
    const working = model.ended.filter((it, number) => number && it === null).length;
    patch(this.children, [
      element('h2', {}, `${counted(model.size - 1, 'task')}${working ? `, ${working} at work` : ''}`),
      ...tasks.map((number) => {
        const { glyph, word, group } = describe(model.status[number]);
        const started = model.started[number];
        const time = started === null ? '' : ` · ${duration((model.ended[number] ?? Math.max(now, started)) - started)}`;
        return element('a', { href: address(['runs', this.session, 'tasks', model.ids[number]]), class: `child ${model.shownMode(number) === 'detached' ? 'dashed' : ''}` },
          element('span', { class: `glyph ${group}`, title: word }, glyph), element('b', {}, oneLine(model.agent[number], 40)),
          element('span', { class: 'about' }, oneLine(model.name(number), 120)), element('small', {}, `${word}${time}`));
      }),
    ]);
  }

  drawAsks() {
    const mine = this.console.inbox.approvals.filter((it) => it.run === this.session);
    patch(this.asks, mine.map((it) => {
      if (!this.boxes.has(it.id)) this.boxes.set(it.id, approvalBox(this.console, it));
      return this.boxes.get(it.id);
    }));
    if (mine.length) this.conversation.grown();
  }

  // Return whether the server has it: what was not sent stays in the composer.
  async send({ session, text, parts, key }) {
    try {
      await this.console.api.post(`v1/sessions/${session}/messages`, { text, parts, reasoning: true }, key);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
      return false;
    }
    if (session === this.session) this.conversation.follow();
    return true;
  }

  // Stop the turn: what was said so far stays, and tasks in the background go on.
  async cancel() {
    try {
      await this.console.api.post(`v1/sessions/${this.session}/cancel`);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  remove() {
    const session = this.list.selected;
    deleteDialog(this.console, { id: this.session, ended: !['in_progress', 'waiting'].includes(session?.status) }, this.list.title(session));
  }
}
