// The conversation of one task: its messages as they come, and what its model is writing now.
//
// Tool calls are cards with their results inside. The end is followed as long as the reader is there.

import { element, fill, patch } from '../run/dom.js';
import { count, counted, duration, exactMoney, oneLine, printable, tokens } from '../run/format.js';
import { markdown, structured } from './markdown.js';

const PAGE = 500;
const FOLDED_LINES = 40;
// The id of what no person wrote, after its fact: a task or a command in the background has ended. The
// ids of messages have ten places.
const NOTICE = /^m_\d{1,9}$/;
const NEAR = 48; // pixels from the end that are still at the end
const AGAIN = 2000; // milliseconds until a page that was not got is asked for again
const NOTICES = {
  retrying: ({ why, seconds }) => `The provider failed (${why}). It is asked again in ${duration(seconds)}.`,
  switched: ({ why, model }) => `The provider failed (${why}). ${model} goes on.`,
  compacted: ({ messages, summarized }) => `The conversation was too long for the model. ${counted(messages, 'message')} ${messages === 1 ? 'was' : 'were'} ${summarized ? 'summarized' : 'shortened'} for it; here all of it stays.`,
};

export class Conversation {
  // scroller: what scrolls when the conversation grows.
  // names: how the roles of messages are called.
  constructor(console_, scroller, { names = {} } = {}) {
    this.console = console_;
    this.names = { user: 'input', assistant: 'model', tool: 'tool', ...names };
    this.scroller = scroller;
    this.list = element('div', { class: 'messages' });
    this.writing = element('article', { class: 'message assistant writing', hidden: true });
    this.jump = element('button', { type: 'button', class: 'chip jump', hidden: true, onclick: () => this.follow() }, '↓ go to the end');
    this.pending = element('div', { class: 'messages' });
    this.element = element('section', { class: 'conversation', 'aria-label': 'Transcript', tabindex: 0 },
      this.list, this.writing, this.pending, this.jump);
    this.task = null;
    this.onScroll = () => {
      this.isFollowing = this.isAtEnd;
      if (this.isFollowing) this.jump.hidden = true;
    };
    scroller.addEventListener('scroll', this.onScroll);
    // What appears beside it, or a keyboard on a phone, must not cover the end.
    new ResizeObserver(() => this.task && this.isFollowing && this.follow()).observe(scroller);
  }

  get isAtEnd() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  open(task, { follow = false } = {}) {
    if (task === this.task) return;
    this.close();
    this.task = task;
    this.count = 0;
    this.cards = new Map(); // call id to its card
    this.text = '';
    this.isFollowing = follow;
    this.isEmpty = true;
    fill(this.list, element('p', { class: 'hint' }, 'Reading …'));
    fill(this.pending);
    this.writing.hidden = true;
    this.isBehind = true;
    this.received = Promise.resolve();
    this.stop = this.console.live.watch(`task:${task}`, (message) => this.receive(message));
  }

  close() {
    this.stop?.();
    this.stop = null;
    this.task = null;
    clearTimeout(this.timer);
  }

  // In turn: what comes while a page is read must not be put before it.
  receive(message) {
    const { task } = this;
    this.received = this.received.then(() => this.apply(task, message));
    return this.received;
  }

  async apply(task, { messages, afresh, text = '', notices = [], error }) {
    if (task !== this.task) return;
    if (error) {
      fill(this.list, element('p', { class: 'hint' }, printable(error)));
      return;
    }
    if (messages) await this.read(task);
    if (task !== this.task) return;
    if (afresh) this.text = '';
    this.text += text;
    for (const notice of notices) this.note(notice, afresh);
    this.drawWriting();
    this.grown();
  }

  async read(task) {
    this.isBehind = true;
    for (let hasMore = true; hasMore;) {
      let page;
      try {
        page = await this.console.api.get(`v1/tasks/${task}/transcript?limit=${PAGE}&after=${this.count}`);
      } catch (error) {
        if (task === this.task && this.isEmpty) fill(this.list, element('p', { class: 'hint' }, printable(error.message)));
        // A stream that was lost begins with all that was missed.
        if (task === this.task && error.status !== 404 && this.console.live.state === 'live') this.timer = setTimeout(() => this.receive({ messages: true }), AGAIN);
        return;
      }
      if (task !== this.task) return;
      if (page.count < this.count) {
        // It began anew: what was said before is forgotten.
        this.count = 0;
        this.isEmpty = true;
        continue;
      }
      if (this.isEmpty) fill(this.list);
      this.isEmpty = false;
      for (const message of page.data) this.add(message);
      this.count += page.data.length;
      hasMore = page.has_more;
      if (!this.count) fill(this.list, element('p', { class: 'hint' }, 'Nothing was said yet.'));
      this.isEmpty = !this.count;
      patch(this.pending, page.queued.map((it) => this.queued(it)));
    }
    this.isBehind = false;
  }

  // A message that was sent, until the conversation has it: a turn reads it when it begins.
  queued({ id, text, parts }) {
    return element('article', { class: 'message user pending', 'data-message': id },
      element('h3', {}, this.names.user, element('span', { class: 'badge' }, 'queued')),
      text ? element('div', { class: 'text', dir: 'auto' }, ...markdown(text)) : null, ...attachments(parts));
  }

  // What has happened to a call of the model. The same again is one line. If the call has ended, its
  // answer may have been read already: it comes after what happened.
  note({ notice: kind, ...facts }, hasEnded) {
    const line = element('p', { class: 'hint event', role: 'status', 'data-kind': kind }, oneLine(NOTICES[kind](facts), 240));
    const { lastElementChild: last } = this.list;
    const isAnswer = hasEnded && last?.matches('.message.assistant');
    const before = isAnswer ? last.previousElementSibling : last;
    if (before?.dataset.kind === kind) before.replaceWith(line);
    else this.list.insertBefore(line, isAnswer ? last : null);
  }

  add(message) {
    if (message.role === 'tool') {
      const card = this.cards.get(message.call);
      if (card) {
        finish(card, message);
        return;
      }
    }
    this.list.append(NOTICE.test(message.id) && message.role === 'user' && this.list.firstChild ? notice(message) : this.element_(message));
  }

  element_(message) {
    const { role, text } = message;
    const calls = (message.calls ?? []).map((call) => {
      const card = toolCard(call);
      this.cards.set(call.id, card);
      return card;
    });
    const who = role === 'user' && message.aside ? 'message to it' : (role === 'assistant' && message.model) || this.names[role];
    const { usage } = message;
    const cost = usage && (usage.input_tokens || usage.output_tokens) ? element('span', { class: 'cost', title: 'read · written' },
      `${tokens(usage.input_tokens)} · ${tokens(usage.output_tokens)} tokens${usage.cost ? ` · ${exactMoney(usage.cost, 0)}` : ''}`) : null;
    return element('article', { 'data-message': message.id, class: `message ${role}${message.failed ? ' failed' : ''}${message.aside ? ' aside' : ''}` },
      element('h3', {}, element('span', {}, oneLine(who, 60)), message.incomplete ? element('span', { class: 'badge' }, 'broken off') : null, cost),
      text ? folded(role === 'tool' ? [structured(text)] : markdown(text), text) : null,
      ...attachments(message.parts),
      ...calls);
  }

  drawWriting() {
    this.writing.hidden = !this.text;
    if (this.text) fill(this.writing, element('h3', {}, 'writing', element('span', { class: 'caret', 'aria-hidden': 'true' }, ' ▍')), element('div', { class: 'text' }, ...markdown(this.text)));
    else fill(this.writing);
  }

  grown() {
    if (this.isFollowing) this.follow();
    else if (!this.isAtEnd && this.count) this.jump.hidden = this.writing.hidden;
  }

  follow() {
    this.isFollowing = true;
    this.jump.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

function attachments(parts = []) {
  return parts.map(({ name, media_type: type, bytes }) => element('p', { class: 'hint attachment' },
    `attached: ${oneLine(name || type, 80)}${bytes ? `, ${count(bytes)} bytes` : ''}`));
}

// What has woken the agent, in one line; all of it when asked for.
function notice({ id, text }) {
  const [first] = text.split('\n');
  return element('details', { class: 'tool notice', 'data-message': id },
    element('summary', {}, element('span', { class: 'about' }, oneLine(first, 160)), element('span', { class: 'state' }, 'woke it')),
    element('div', { class: 'body' }, folded([structured(text)], text)));
}

// A long text is folded, and says how long it is.
function folded(content, text) {
  const body = element('div', { class: 'text', dir: 'auto' }, ...content);
  const lines = text.split('\n').length;
  if (lines <= FOLDED_LINES && text.length <= 6000) return body;
  body.classList.add('is-folded');
  const button = element('button', { type: 'button', class: 'link', onclick: () => {
    body.classList.remove('is-folded');
    button.remove();
  } }, `show all ${lines > FOLDED_LINES ? `${count(lines)} lines` : `${count(text.length)} characters`}`);
  return element('div', {}, body, button);
}

// What a call is about, in few words: its first short argument.
function aboutCall({ name, arguments: given }) {
  if (name === 'delegate_task') {
    const many = Array.isArray(given.tasks) ? given.tasks.length : 1;
    return many === 1 ? oneLine(String(given.goal ?? given.tasks?.[0]?.goal ?? ''), 80) : `${count(many)} tasks`;
  }
  const first = Object.values(given).find((it) => typeof it === 'string' || typeof it === 'number');
  return first === undefined ? '' : oneLine(String(first), 80);
}

function toolCard(call) {
  const state = element('span', { class: 'state running' }, '◐ running');
  const body = element('div', { class: 'body' });
  const card = element('details', { class: 'tool', 'data-call': call.id },
    element('summary', {}, element('code', { class: 'name' }, oneLine(call.name, 60)), element('span', { class: 'about' }, aboutCall(call)), state), body);
  // Made when it is opened: a conversation may have thousands of them.
  card.addEventListener('toggle', () => {
    if (!card.open || body.firstChild) return;
    fillCard(card, body, call);
  });
  card.fillAgain = () => body.firstChild && fillCard(card, body, call);
  card.state = state;
  return card;
}

function fillCard(card, body, call) {
  const { result } = card;
  fill(body, element('p', { class: 'label' }, 'arguments'), structured(JSON.stringify(call.arguments)),
    result ? element('p', { class: 'label' }, result.failed ? 'error' : 'result') : null,
    result ? folded([structured(result.text)], result.text) : null);
}

function finish(card, message) {
  card.result = message;
  card.classList.toggle('failed', message.failed);
  card.state.className = `state ${message.failed ? 'failed' : 'done'}`;
  card.state.textContent = message.failed ? '✗ failed' : '✓';
  card.fillAgain();
}

