// Conversations: ask, see the answer as it is written, and see the tasks in the background beside it.
//
// The session lives on the server. A closed tab, a sleep or a restart of the server loses nothing: all of
// it is read again. What is typed and not sent is kept for each conversation.

import { element, fill, patch } from '../run/dom.js';
import { copyButton } from '../run/copy.js';
import { counted, duration, oneLine, printable } from '../run/format.js';
import { describe } from '../run/status.js';
import { approvalBox, deleteDialog } from './actions.js';
import { branchSwitch } from './branches.js';
import { choicesDialog } from './chat_choices.js';
import { ChatHead } from './chat_head.js';
import { ChatList } from './chat_list.js';
import { ChatStart } from './chat_start.js';
import { Composer, NEW } from './composer.js';
import { Conversation } from './conversation.js';
import { FindBar } from './find_bar.js';
import { address } from './router.js';
import { applyRows } from './run_rows.js';
import { NOTICE } from '../run/messages.js';
import { saveFile } from '../run/page_secret.js';

const MOST_CHILDREN = 60;

export class ChatPage {
  constructor(console_) {
    this.console = console_;
    this.list = new ChatList(console_, (deleted) => this.listChanged(deleted));
    this.head = new ChatHead(this);
    this.start = new ChatStart(console_, () => this.drawPlaceholder());
    this.scroller = element('div', { class: 'chat-scroll', tabindex: 0, role: 'log', 'aria-label': 'Conversation' });
    this.asks = element('div', { class: 'chat-asks' });
    this.composer = new Composer(console_, { send: (message) => this.send(message), stop: () => this.cancel(), commands: () => this.commands(), editLast: () => this.editLast() });
    this.children = element('aside', { class: 'children', 'aria-label': 'Tasks of this conversation', tabindex: 0, hidden: true });
    this.conversation = new Conversation(console_, this.scroller, {
      names: { user: 'you' }, footer: (message) => this.footer(message), turnActions: (turn) => this.turnActions(turn), onPage: (page) => this.pageRead(page),
    });
    this.find = new FindBar(this.conversation.element, () => this.closeFind());
    this.scroller.append(element('h2', { class: 'unseen' }, 'Messages'), this.conversation.element, this.asks);
    this.main = element('section', { class: 'chat-main' });
    this.element = element('main', { class: 'chat' }, this.list.element, this.main, this.children);
    this.composer.takeDropped(this.main);
    this.boxes = new Map(); // approval id to its box: what is typed there stays
    this.session = null;
    this.models = []; // language models that a person may choose
    document.addEventListener('visibilitychange', () => this.takeReplies());
    this.onKey = (event) => this.key(event);
    this.readModels();
  }

  show(route) {
    this.list.show();
    this.stop ??= this.console.inbox.listen(() => this.inboxChanged());
    this.timer ??= setInterval(() => this.tick(), 1000);
    document.addEventListener('keydown', this.onKey);
    const session = route.params.session ?? null;
    if (session !== this.session || !this.main.firstChild) this.open(session);
    // On a phone, the list and a new conversation are two pages.
    this.element.dataset.open = session || route.query.get('new') ? 'yes' : 'no';
    if (route.query.get('new')) this.composer.text.focus();
  }

  hide() {
    this.list.hide();
    this.stop?.();
    this.stop = null;
    clearInterval(this.timer);
    this.timer = null;
    document.removeEventListener('keydown', this.onKey);
    this.open(null);
  }

  async readModels() {
    try {
      const { data, language_models: models } = await this.console.api.get('v1/models');
      this.models = models;
      this.start.describe(data);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  open(session) {
    this.stopRows?.();
    this.stopRows = null;
    this.conversation.close();
    this.closeFind();
    this.session = session;
    this.model = null;
    this.head.open();
    this.boxes.clear();
    this.composer.open(session ?? NEW);
    if (session) fill(this.main, this.head.element, this.scroller, this.composer.element);
    else fill(this.main, element('a', { class: 'chip back', href: '#/chat', 'aria-label': 'All conversations' }, '‹'), this.start.element);
    if (!session) this.start.element.append(this.composer.element);
    this.main.classList.toggle('is-start', !session);
    fill(this.children);
    this.children.hidden = true;
    this.list.select(session);
    this.drawPlaceholder();
    this.composer.focus();
    if (!session) return;
    this.conversation.open(session, { follow: true });
    this.stopRows = this.console.live.watch(`run:${session}`, (message) => this.receiveRows(message));
    this.head.readChoices();
    this.inboxChanged();
  }

  drawPlaceholder() {
    const agent = this.session ? this.list.selected?.agent : this.start.agent;
    this.composer.text.placeholder = agent ? `Message ${oneLine(agent, 40)}` : 'Message';
  }

  listChanged(deleted) {
    if (!this.session) return;
    if (deleted.includes(this.session)) this.console.router.go('chat');
    else {
      this.head.draw();
      this.drawPlaceholder();
      this.drawBranches();
    }
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
    this.head.draw();
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

  pageRead({ context }) {
    this.head.context = context;
    this.head.draw();
    this.drawBranches();
    if (this.find.element.isConnected) this.find.search(true);
  }

  // The actions below a message: a message of a person can be changed, and its answer asked for again.
  footer({ role, text, aside, number, incomplete, calls }) {
    if (aside || role === 'tool' || (role === 'assistant' && calls?.length)) return [];
    const may = this.console.may('run');
    const quiet = (words, title, act) => element('button', { type: 'button', class: 'quiet', title, onclick: act }, words);
    return [element('footer', { class: 'message-actions' },
      text ? copyButton(() => text, 'Copy this message') : null,
      role === 'user' && may ? quiet('Edit', 'Change the message, and send it in a new branch', (event) => this.edit(event.currentTarget.closest('.message'), number, text)) : null,
      role === 'assistant' && may && !incomplete ? quiet('Regenerate', 'Ask for another answer, in a new branch', () => this.regenerate(number)) : null)];
  }

  drawBranches() {
    for (const message of this.conversation.list.querySelectorAll('.message.user[data-number]')) {
      const made = branchSwitch(this.list.sessions, this.session, Number(message.dataset.number));
      const footer = message.querySelector('.message-actions');
      footer?.querySelector('.branches')?.remove();
      if (made) footer?.prepend(made);
    }
  }

  turnActions(turn) {
    if (!this.console.may('run')) return [];
    if (turn.ending === 'cancelled') {
      return [['Continue', 'Go on where the answer was stopped', () => this.retry()], ['Regenerate', 'Ask for another answer, in a new branch', () => this.regenerate(turn.last + 1)]];
    }
    const others = this.models.length ? [['Retry with another model', 'Choose a model, and answer the message again', () => this.chooseModel(() => this.retry())]] : [];
    return [['Retry', 'Answer the message again', () => this.retry()], ...others];
  }

  // Change a message in its place; Enter sends it in a new branch, Escape leaves it as it was.
  edit(message, number, text) {
    if (message.querySelector('.edit')) return;
    const field = element('textarea', { 'aria-label': 'Changed message', rows: Math.min(12, text.split('\n').length + 1), onkeydown: (event) => {
      if (event.key === 'Escape') form.remove();
      else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) form.requestSubmit();
      else return;
      event.preventDefault();
      event.stopPropagation();
    } });
    field.value = text;
    const form = element('form', { class: 'edit', onsubmit: (event) => {
      event.preventDefault();
      if (field.value.trim()) this.branch(number, field.value.trim());
    } }, field, element('div', { class: 'buttons' },
      element('button', { type: 'button', class: 'chip', onclick: () => form.remove() }, 'Keep it as it was'), element('button', { class: 'primary' }, 'Send in a new branch')));
    message.append(form);
    field.focus();
  }

  editLast() {
    const last = [...this.conversation.list.querySelectorAll('.message.user .message-actions button[title^="Change"]')].at(-1);
    last?.click();
  }

  // Another answer to the last message of a person before this one.
  async regenerate(number) {
    const { session } = this;
    try {
      const { data } = await this.console.api.get(`v1/tasks/${session}/transcript?limit=1000&after=${Math.max(0, number - 1000)}`);
      const asked = data.filter((it) => it.role === 'user' && !it.aside && !NOTICE.test(it.id) && it.number < number).at(-1);
      if (asked) await this.branch(asked.number, asked.text);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  async branch(before, text) {
    const { session } = this;
    try {
      const made = await this.console.api.post(`v1/sessions/${session}/branch`, { before, text, reasoning: true });
      this.list.keep(made.id, made);
      this.console.router.go(['chat', made.id]);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  async retry() {
    try {
      await this.console.api.post(`v1/sessions/${this.session}/retry`);
      this.conversation.follow();
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  // Ask for the model, the style and the folder; then call a function.
  chooseModel(then = () => {}) {
    const { session } = this;
    choicesDialog(this.head.choices, this.models, async (changes) => {
      const error = await this.head.change(session, changes);
      if (!error) then();
      return error;
    });
  }

  openFind() {
    this.main.classList.add('has-find');
    this.head.element.after(this.find.element);
    this.find.open();
  }

  closeFind() {
    this.find.close();
    this.find.element.remove();
    this.main.classList.remove('has-find');
  }

  async share() {
    try {
      await saveFile(`v1/runs/${this.session}/tree?format=html`, `${this.list.title(this.list.selected).replace(/[^\p{L}\p{N} _-]+/gu, '').trim() || 'conversation'}.html`);
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  // The commands of the composer.
  commands() {
    const go = { name: 'new', about: 'Begin another conversation', act: () => this.console.router.go('chat', { new: 1 }) };
    if (!this.session) return [go];
    return [go,
      { name: 'retry', about: 'Answer the last message again, if it failed', act: () => this.retry() },
      { name: 'stop', about: 'Stop the answer; its text so far stays', act: () => this.cancel() },
      { name: 'model', takes: 'NAME', about: 'Use another model from the next message on', act: (name) => this.useModel(name) },
      { name: 'style', about: 'Choose a style, a model and a folder', act: () => this.chooseModel() },
      { name: 'find', about: 'Search in this conversation', act: () => this.openFind() },
      { name: 'rename', takes: 'TITLE', about: 'Give it a title', act: (title) => this.list.rename(this.session, title) },
      { name: 'report', about: 'Save it as one file to share', act: () => this.share() },
      { name: 'delete', about: 'Delete it', act: () => this.remove() }];
  }

  async useModel(name) {
    if (!name) return this.chooseModel();
    const error = await this.head.change(this.session, { language_model: name });
    if (error) this.console.shell.say(error, { failed: true });
    return null;
  }

  // Letters are keys while no field has the focus.
  key(event) {
    if (event.key === 'f' && (event.ctrlKey || event.metaKey) && event.shiftKey && this.session) {
      event.preventDefault();
      this.openFind();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') || event.target.closest('input, textarea, select')) return;
    if (event.key === 'n' && this.console.may('run')) this.console.router.go('chat', { new: 1 });
    else if (event.key === '/') this.list.search.focus();
    else if (event.key === 'r') this.conversation.list.querySelector('.failed-turn .actions button')?.click();
    else return;
    event.preventDefault();
  }

  tick() {
    if (this.model?.ended.some((it, number) => number && it === null)) this.drawChildren();
  }

  // The delegated tasks of the conversation: running ones first, then the newest.
  drawChildren() {
    const { model } = this;
    const tasks = model.ids.map((_, number) => number).slice(1)
      .sort((one, other) => (model.ended[one] === null ? 0 : 1) - (model.ended[other] === null ? 0 : 1) || other - one).slice(0, MOST_CHILDREN);
    this.children.hidden = !tasks.length;
    const now = this.console.now();
    const working = model.ended.filter((it, number) => number && it === null).length;
    patch(this.children, [
      element('h2', {}, `${counted(model.size - 1, 'task')}${working ? `, ${working} running` : ''}`),
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
      const id = session === NEW ? await this.list.create(this.start.agent, key) : session;
      await this.console.api.post(`v1/sessions/${id}/messages`, { text, parts, reasoning: true }, key);
      if (session === NEW && !this.session) this.console.router.go(['chat', id]);
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
