// The conversation of one task: its messages as they come, and what its model is writing now.
//
// The end is followed as long as the reader is there.

import { element, fill, patch } from '../run/dom.js';
import { count, counted, duration, oneLine, printable } from '../run/format.js';
import { markdown } from '../run/markdown.js';
import { attachments, reasoning } from '../run/message_parts.js';
import { MessageList } from '../run/messages.js';
import { turnCard } from './turn_card.js';

const PAGE = 500;
const NEAR = 48; // pixels from the end that are still at the end
const AGAIN = 2000; // milliseconds until a page that was not got is asked for again
// What happens to the call under way. What has happened to earlier ones, the transcript says.
const NOTICES = {
  retrying: ({ why, seconds }) => `The provider failed (${why}). It is asked again in ${duration(seconds)}.`,
  switched: ({ why, model }) => `The provider failed (${why}). The model ${model} is asked instead.`,
  compacted: ({ messages, summarized }) => `The conversation is too long for the model. ${counted(messages, 'message')} ${messages === 1 ? 'is' : 'are'} ${summarized ? 'summarized' : 'shortened'} for it.`,
  queued: ({ text }) => (text ? `The call is ${text}.` : 'The call waits for a rate limit or a budget.'),
};

export class Conversation {
  // scroller: what scrolls when the conversation grows.
  // chat: how the roles of messages are called, the elements below a message, and the actions on a
  // turn that has failed; and what is told after each page of the transcript.
  constructor(console_, scroller, { names = {}, footer, turnActions, onPage = () => {} } = {}) {
    this.console = console_;
    this.messages = new MessageList(names, footer);
    this.turnActions = turnActions;
    this.onPage = onPage;
    this.scroller = scroller;
    this.list = this.messages.element;
    this.thought = reasoning('');
    this.doing = element('span');
    this.words = element('div', { class: 'text', dir: 'auto' });
    this.notice = element('p', { class: 'hint event', role: 'status', hidden: true });
    this.writing = element('article', { class: 'message assistant writing', hidden: true });
    this.jump = element('button', { type: 'button', class: 'chip jump', hidden: true, onclick: () => this.follow() }, '↓ go to the end');
    this.pending = element('div', { class: 'messages' });
    this.element = element('section', { class: 'conversation', 'aria-label': 'Transcript', tabindex: 0 },
      this.list, this.writing, this.notice, this.pending, this.jump);
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
    this.messages.open(task);
    this.text = this.thoughts = '';
    this.turns = new Map(); // number to turn
    this.isFollowing = follow;
    this.followedTo = 0; // where the end was when it was last followed
    this.isEmpty = true;
    fill(this.list, element('p', { class: 'hint' }, 'Reading …'));
    fill(this.pending);
    this.writing.hidden = this.notice.hidden = this.jump.hidden = true;
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

  async apply(task, { messages, afresh, text = '', reasoning: thoughts = '', notice, error }) {
    if (task !== this.task) return;
    if (error) {
      fill(this.list, element('p', { class: 'hint' }, printable(error)));
      return;
    }
    const before = this.isEmpty ? Infinity : this.count;
    if (messages) await this.read(task);
    if (task !== this.task) return;
    if (afresh) this.text = this.thoughts = '';
    this.text += text;
    this.thoughts += thoughts;
    this.drawNotice(notice, afresh || text);
    this.drawWriting();
    this.grown(Boolean(text || thoughts) || this.count > before);
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
        this.turns.clear();
        this.isEmpty = true;
        continue;
      }
      if (this.isEmpty) fill(this.list);
      this.isEmpty = false;
      this.addPage(page);
      hasMore = page.has_more;
      if (!this.count) fill(this.list, element('p', { class: 'hint' }, 'Nothing was said yet.'));
      this.isEmpty = !this.count;
      patch(this.pending, page.queued.map((it) => this.queued(it)));
      this.onPage(page);
    }
    this.isBehind = false;
  }

  // A message that was sent, until the conversation has it: a turn reads it when it begins.
  queued(message) {
    const { id, text } = message;
    return element('article', { class: 'message user pending', 'data-message': id },
      element('h3', {}, this.messages.names.user, element('span', { class: 'badge' }, 'queued')),
      text ? element('div', { class: 'text', dir: 'auto' }, ...markdown(text)) : null, ...attachments(message, this.task));
  }

  // What has happened to calls of models is said before the messages that came after it.
  addPage({ agent, data, incidents, turns }) {
    if (this.turnActions) this.messages.agent = agent;
    for (const old of this.list.querySelectorAll('.event')) if (Number(old.dataset.after) >= this.count) old.remove();
    const before = (number) => this.list.append(...incidentLines(incidents.filter((it) => it.after === number)));
    for (const message of data) {
      before(this.count);
      this.messages.add(message);
      this.count += 1;
    }
    before(this.count);
    for (const turn of turns) this.turns.set(turn.number, turn);
    for (const turn of turns) this.drawTurn(turn);
  }

  // The times of the messages of a turn, and how it has ended, if not by an answer.
  drawTurn(turn) {
    for (let number = turn.first; number <= turn.last; number += 1) {
      const message = this.list.querySelector(`.message[data-number="${number}"]`);
      const isAnswer = message?.classList.contains('assistant');
      const time = message?.querySelector('time');
      if (time) drawTime(time, isAnswer ? turn.ended : turn.started);
    }
    const isLast = turn.number === Math.max(...this.turns.keys());
    if (isLast) for (const old of this.list.querySelectorAll('.turn-card .actions')) old.remove();
    this.list.querySelector(`[data-turn="${turn.number}"]`)?.remove();
    if (turn.ending === null || turn.ending === 'succeeded') return;
    const card = turnCard(turn, isLast ? this.turnActions?.(turn) : null);
    const next = [...this.list.querySelectorAll('[data-number]')].find((it) => Number(it.dataset.number) > turn.last);
    const later = [...this.list.querySelectorAll('[data-turn]')].find((it) => Number(it.dataset.turn) > turn.number);
    this.list.insertBefore(card, later && (!next || later.compareDocumentPosition(next) & Node.DOCUMENT_POSITION_FOLLOWING) ? later : next ?? null);
  }

  drawNotice(notice, isOver) {
    if (isOver) this.notice.hidden = true;
    if (!notice) return;
    this.notice.hidden = !notice.kind;
    this.notice.dataset.kind = notice.kind;
    if (notice.kind) fill(this.notice, oneLine(NOTICES[notice.kind](notice), 240));
  }

  drawWriting() {
    const isWriting = Boolean(this.text || this.thoughts);
    if (this.writing.hidden === isWriting) {
      this.writing.hidden = !isWriting;
      if (isWriting) fill(this.writing, element('h3', {}, this.messages.agent || null, this.doing, element('span', { class: 'caret', 'aria-hidden': 'true' }, ' ▍')), this.thought.element, this.words);
      else fill(this.writing);
    }
    this.doing.textContent = this.text ? 'writing' : 'thinking';
    this.thought.show(this.thoughts, !this.text);
    patch(this.words, this.text ? markdown(this.text) : []);
  }

  // hasNews: there is something below that the reader has not seen.
  grown(hasNews = false) {
    // A reader may have scrolled up since the last frame, of which no event has told yet.
    if (this.scroller.scrollTop < this.followedTo - 1 && !this.isAtEnd) this.isFollowing = false;
    if (this.isFollowing) this.follow();
    else if (hasNews && !this.isAtEnd) this.jump.hidden = false;
  }

  follow() {
    this.isFollowing = true;
    this.jump.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.followedTo = this.scroller.scrollTop;
  }
}

// One line for each thing that has happened to calls; the same again is counted.
function incidentLines(incidents) {
  const lines = new Map();
  for (const it of incidents) {
    const words = incidentWords(it);
    lines.set(words, { ...it, times: (lines.get(words)?.times ?? 0) + 1 });
  }
  return [...lines].map(([words, { after, times, left_out: left, summary }]) => element('p', { class: 'hint event', 'data-after': after, 'data-kind': left || summary ? 'shortened' : 'failed' },
    words, times > 1 ? element('span', { class: 'badge' }, `${count(times)} times`) : null));
}

function incidentWords({ error, then, left_out: left, summary }) {
  if (summary) return `The conversation was summarized for the delegated tasks: ${oneLine(summary, 400)}`;
  if (left) return `The model did not read all of it: ${counted(left, 'character')} were left out or summarized, to fit its window. Here all of it stays.`;
  return `The provider failed: ${oneLine(error, 200).replace(/\.$/, '')}. ${then ? `The model ${oneLine(then, 60)} was asked instead.` : 'It was asked again.'}`;
}

function drawTime(time, at) {
  if (at === null) return;
  const date = new Date(at * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  time.dateTime = date.toISOString();
  time.title = date.toLocaleString();
  time.textContent = date.toLocaleString([], { ...(isToday ? {} : { month: 'short', day: 'numeric' }), hour: '2-digit', minute: '2-digit' });
}
