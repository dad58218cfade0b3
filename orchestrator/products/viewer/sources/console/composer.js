// Where a message is written: text, files and images, also pasted or dropped ones. A draft is kept.
//
// A draft has a key until it is sent. If the answer to a request is lost, the same draft again has the
// same key, and is said once.

import { element } from '../run/dom.js';
import { newKey } from './api.js';
import { Attachments, parts } from './attachments.js';

const DRAFT = 'orchestrator draft ';

export class Composer {
  constructor(console_, { send, stop }) {
    this.console = console_;
    this.onSend = send;
    this.drafts = new Map(); // session to {files, key}
    this.text = element('textarea', {
      rows: 1, placeholder: 'Message', 'aria-label': 'Message', disabled: !console_.may('run'),
      oninput: () => this.changed(), onkeydown: (event) => this.key(event), onpaste: (event) => this.attached.takePasted(event),
    });
    this.attached = new Attachments(console_, (files) => {
      this.draft.files = files;
      this.draft.key = newKey();
    });
    this.button = element('button', { type: 'submit', class: 'primary' }, 'Send');
    this.stop = element('button', { type: 'button', class: 'chip danger', hidden: true, title: 'What was said so far stays', onclick: stop }, '■ Stop');
    this.element = element('form', { class: 'composer', onsubmit: (event) => this.submit(event) }, this.attached.element,
      element('div', { class: 'line' },
        element('button', { type: 'button', class: 'chip', disabled: !console_.may('run'), title: 'Attach files', 'aria-label': 'Attach files', onclick: () => this.attached.choose() }, '+'),
        this.attached.picker, this.text, this.stop, this.button));
  }

  takeDropped(target) {
    this.attached.takeDropped(target, () => this.session);
  }

  get draft() {
    if (!this.drafts.has(this.session)) this.drafts.set(this.session, { files: [], key: newKey() });
    return this.drafts.get(this.session);
  }

  set isBusy(isBusy) {
    this.isInTurn = isBusy;
    this.stop.hidden = !isBusy || !this.console.may('steer');
    this.button.textContent = isBusy ? 'Queue' : 'Send';
    this.button.title = isBusy ? 'The next turn reads it' : '';
  }

  open(session, isBusy = false) {
    this.session = session;
    this.text.value = session ? localStorage.getItem(DRAFT + session) ?? '' : '';
    this.isBusy = isBusy;
    this.drawSending();
    this.attached.show(session ? this.draft.files : []);
    this.grow();
  }

  focus() {
    if (window.matchMedia('(min-width: 800px)').matches) this.text.focus();
  }

  changed() {
    this.draft.key = newKey();
    if (this.text.value) localStorage.setItem(DRAFT + this.session, this.text.value);
    else localStorage.removeItem(DRAFT + this.session);
    this.grow();
  }

  grow() {
    this.text.style.height = 'auto';
    this.text.style.height = `${Math.min(this.text.scrollHeight + 2, 240)}px`;
  }

  key(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.element.requestSubmit();
  }

  async submit(event) {
    event.preventDefault();
    const { session, draft } = this;
    const text = this.text.value.trim();
    if (draft.isSending || (!text && !draft.files.length)) return;
    this.sending(draft, true);
    let isSent = false;
    try {
      isSent = await this.onSend({ session, text, parts: await parts(draft.files), key: draft.key });
    } catch {
      this.console.shell.say('A file could not be read. Attach it again.', { failed: true });
    }
    this.sending(draft, false);
    if (!isSent) return;
    this.drafts.delete(session);
    localStorage.removeItem(DRAFT + session);
    if (session === this.session) this.open(session, this.isInTurn);
  }

  // Only what is being sent cannot be changed.
  sending(draft, isSending) {
    draft.isSending = isSending;
    this.drawSending();
  }

  drawSending() {
    const isSending = Boolean(this.session && this.draft.isSending);
    this.button.disabled = isSending || !this.console.may('run');
    this.text.readOnly = isSending;
  }
}
