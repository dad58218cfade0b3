// The inbox: what waits for a person, without the tree. It is usable on a phone.

import { element, patch } from '../run/dom.js';
import { count, counted, duration, oneLine, printable } from '../run/format.js';
import { describe } from '../run/status.js';
import { approvalBox } from './actions.js';
import { address } from './router.js';

const READING = 'Reading …';
const TICK = 10_000; // milliseconds: how long ago something was

export class InboxPage {
  constructor(console_) {
    this.console = console_;
    this.boxes = new Map(); // approval id to its item: what is typed there stays
    this.asks = element('section', { 'aria-label': 'Approvals' });
    this.failures = element('section', { 'aria-label': 'Failures' });
    this.replies = element('section', { 'aria-label': 'Replies' });
    this.allow = element('button', { type: 'button', class: 'chip', onclick: () => this.allowNotifications() }, 'Notify me');
    this.element = element('main', { class: 'inbox' },
      element('header', {}, element('h1', {}, 'Inbox'), this.allow), this.asks, this.failures, this.replies);
    // One for all: what is drawn anew keeps its elements, and would keep what they did before.
    this.element.addEventListener('click', ({ target }) => this.clicked(target.closest('[data-read]')));
  }

  show() {
    this.stop ??= this.console.inbox.listen(() => this.draw());
    this.timer ??= setInterval(() => this.draw(), TICK);
    this.draw();
  }

  hide() {
    this.stop?.();
    this.stop = null;
    clearInterval(this.timer);
    this.timer = null;
  }

  async allowNotifications() {
    await Notification.requestPermission();
    this.draw();
  }

  clicked(pressed) {
    if (!pressed) return;
    const { inbox } = this.console;
    const { read: id } = pressed.dataset;
    if (id === 'failures') inbox.failures.markRead(...inbox.failures.unread);
    else if (id === 'replies') for (const session of new Set(inbox.replies.map((it) => it.session))) inbox.take(session);
    else {
      inbox.failures.markRead(...inbox.failures.list.filter((it) => it.run === id));
      if (pressed.tagName === 'BUTTON') inbox.take(id);
    }
  }

  draw() {
    this.allow.hidden = !globalThis.Notification || Notification.permission !== 'default';
    this.drawApprovals();
    this.drawFailures();
    this.drawReplies();
  }

  ago(time) {
    const seconds = this.console.now() - time;
    return seconds < 10 ? 'just now' : `${duration(10 * Math.round(seconds / 10)).replace('.0s', 's')} ago`;
  }

  head(words, id, unread) {
    const button = unread > 1 ? element('button', { type: 'button', class: 'link', 'data-read': id }, 'Mark all as read') : null;
    return element('div', { class: 'section-head' }, element('h2', {}, words), button);
  }

  drawApprovals() {
    const { approvals } = this.console.inbox;
    const open = new Set(approvals.map((it) => it.id));
    for (const id of this.boxes.keys()) if (!open.has(id)) this.boxes.delete(id);
    patch(this.asks, [
      this.head(approvals.length ? `${counted(approvals.length, 'approval')} needed` : this.console.inbox.hasApprovals ? 'No approval is needed' : READING),
      ...approvals.map((it) => this.approval(it)),
    ]);
  }

  approval(approval) {
    if (!this.boxes.has(approval.id)) {
      this.boxes.set(approval.id, element('article', { class: 'item', 'data-own': approval.id },
        element('p', { class: 'where' }, element('a', { href: address(['runs', approval.run, 'tasks', approval.task]) }, printable(approval.path)), element('span', { class: 'hint' })),
        approvalBox(this.console, approval)));
    }
    const item = this.boxes.get(approval.id);
    item.querySelector('.where .hint').textContent = ` asked ${this.ago(approval.asked)}`;
    return item;
  }

  drawFailures() {
    const { failures } = this.console.inbox;
    const unread = new Set(failures.unread);
    patch(this.failures, [
      this.head(unread.size ? `${counted(unread.size, 'failed run')}` : failures.hasRead ? 'No new failures' : READING, 'failures', unread.size),
      ...failures.list.map((it) => this.failure(it, unread.has(it))),
    ]);
  }

  // A run, and the first of its tasks that have stopped a branch.
  failure(item, isUnread) {
    const more = item.total - item.tasks.length;
    return element('article', { class: `entry ${isUnread ? 'unread' : ''}`, 'data-run': item.run },
      element('div', { class: 'entry-head' }, mark(isUnread), element('b', {}, oneLine(item.agent, 60)), element('span', { class: 'about' }, oneLine(item.about, 120)),
        element('span', { class: 'hint' }, this.ago(item.last)),
        isUnread ? element('button', { type: 'button', class: 'link', 'data-read': item.run, 'aria-label': `Mark as read: ${oneLine(item.about, 60)}` }, 'Mark as read') : null),
      element('ul', {}, ...item.tasks.map((task) => element('li', {},
        element('a', { href: address(['runs', item.run, 'tasks', task.task]), 'data-read': item.run }, printable(task.path)), ' ',
        element('span', { class: 'failed' }, `${describe(task.status).glyph} ${describe(task.status).word}`),
        task.error ? `: ${oneLine(task.error, 200)}` : '')),
      more > 0 ? element('li', {}, element('a', { href: address(['runs', item.run], { view: 'failures' }), 'data-read': item.run }, `… and ${count(more)} more`)) : null));
  }

  drawReplies() {
    const { replies, answered, hasReplies } = this.console.inbox;
    const words = replies.length === 1 ? '1 unread reply' : `${count(replies.length)} unread replies`;
    const may = this.console.may('run');
    const sessions = Map.groupBy(replies, (it) => it.session);
    patch(this.replies, [
      this.head(replies.length ? words : hasReplies ? 'No unread replies' : READING, 'replies', may ? sessions.size : 0),
      ...[...sessions].map(([session, unread]) => this.conversation(session, unread, may)),
      ...answered.map((it) => element('article', { class: 'entry' },
        element('div', { class: 'entry-head' }, mark(false), element('b', {}, oneLine(it.agent, 60)),
          element('a', { class: 'about', href: address(['chat', it.id]) }, oneLine(it.metadata.title || it.about, 120)),
          element('span', { class: 'hint' }, this.ago(it.changed))))),
    ]);
  }

  // The unread replies of one conversation, as one entry with the last of them.
  conversation(session, unread, may) {
    const last = unread.at(-1);
    const known = this.console.inbox.conversations.get(session);
    const title = oneLine(known?.metadata.title || known?.about || '', 120);
    return element('article', { class: 'entry unread' },
      element('div', { class: 'entry-head' }, mark(true), element('b', {}, oneLine(last.agent, 60)), element('span', { class: 'about' }, title),
        unread.length > 1 ? element('span', { class: 'hint' }, `${count(unread.length)} unread replies`) : null,
        may ? element('button', { type: 'button', class: 'link', 'data-read': session, 'aria-label': `Mark as read: ${title || oneLine(last.text, 60)}` }, 'Mark as read') : null),
      element('a', { class: `reply ${last.error ? 'failed' : ''}`, href: address(['chat', session]) }, oneLine(last.error ? last.error.message : withoutMarkup(last.text), 240) || 'An empty answer.'));
  }
}

// A reply in one line: its Markdown would be read as signs.
function withoutMarkup(text) {
  return text.replace(/^\s*(#+|[-*>]|\d+\.)\s+/gm, '').replace(/(\*\*|__|`+)/g, '').replace(/\[([^\]]*)\]\([^)]*\)/g, '$1');
}

// Colour never stands alone.
function mark(isUnread) {
  return element('span', { class: 'mark', role: 'img', 'aria-label': isUnread ? 'unread' : 'read' }, isUnread ? '●' : '○');
}
