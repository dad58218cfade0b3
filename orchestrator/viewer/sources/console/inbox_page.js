// The inbox: what waits for a person, without the tree. It is usable on a phone.

import { element, fill, patch } from '../run/dom.js';
import { counted, duration, oneLine, printable } from '../run/format.js';
import { approvalBox } from './actions.js';
import { address } from './router.js';

export class InboxPage {
  constructor(console_) {
    this.console = console_;
    this.boxes = new Map(); // approval id to its item: what is typed there stays
    this.asks = element('section', { 'aria-label': 'Approvals' });
    this.replies = element('section', { 'aria-label': 'Replies' });
    this.allow = element('button', { type: 'button', class: 'chip', onclick: () => this.allowNotifications() }, 'Notify me');
    this.element = element('main', { class: 'inbox' },
      element('header', {}, element('h1', {}, 'Inbox'), this.allow), this.asks, this.replies);
  }

  show() {
    this.stop ??= this.console.inbox.listen(() => this.draw());
    this.draw();
  }

  hide() {
    this.stop?.();
    this.stop = null;
  }

  async allowNotifications() {
    await Notification.requestPermission();
    this.draw();
  }

  draw() {
    const { approvals, replies } = this.console.inbox;
    this.allow.hidden = !globalThis.Notification || Notification.permission !== 'default';
    const open = new Set(approvals.map((it) => it.id));
    for (const id of this.boxes.keys()) if (!open.has(id)) this.boxes.delete(id);
    patch(this.asks, [
      element('h2', {}, approvals.length ? `${counted(approvals.length, 'approval')} needed` : 'No approval is needed'),
      ...approvals.map((it) => this.item(it)),
    ]);
    fill(this.replies, element('h2', {}, replies.length ? `${counted(replies.length, 'unread reply').replace('replys', 'replies')}` : 'No unread replies'),
      ...replies.map((it) => element('a', { class: 'reply', href: address(['chat', it.session]) },
        element('b', {}, oneLine(it.agent, 60)), ' ',
        element('span', { class: it.error ? 'failed' : '' }, oneLine(it.error ? it.error.message : it.text, 240)))));
  }

  item(approval) {
    if (!this.boxes.has(approval.id)) {
      this.boxes.set(approval.id, element('article', { class: 'item', 'data-own': approval.id },
        element('p', { class: 'where' }, element('a', { href: address(['runs', approval.run, 'tasks', approval.task]) }, printable(approval.path)),
          element('span', { class: 'hint' }, ` asked ${duration(Math.max(0, this.console.now() - approval.asked))} ago`)),
        approvalBox(this.console, approval)));
    }
    return this.boxes.get(approval.id);
  }
}
