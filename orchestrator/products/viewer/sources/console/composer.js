// Where a message is written: text, files and images, also pasted or dropped ones. A draft is kept.
//
// A draft has a key until it is sent. If the answer to a request is lost, the same draft again has the
// same key, and is said once. A slash at the start is a command of the page.

import { element } from '../run/dom.js';
import { newKey } from './api.js';
import { Attachments, parts } from './attachments.js';
import { SlashMenu } from './slash_menu.js';

const DRAFT = 'orchestrator draft ';
export const NEW = 'new'; // the draft of a conversation that is not begun

export class Composer {
  // send(message): returns whether the server has it. editLast: ↑ in an empty field.
  constructor(console_, { send, stop, commands, editLast }) {
    this.console = console_;
    this.onSend = send;
    this.editLast = editLast;
    this.drafts = new Map(); // session to {files, key}
    this.session = NEW;
    this.text = element('textarea', {
      rows: 1, placeholder: 'Message', 'aria-label': 'Message', disabled: !console_.may('run'),
      'aria-controls': 'slash-menu', 'aria-autocomplete': 'list',
      oninput: () => this.changed(), onkeydown: (event) => this.key(event), onpaste: (event) => this.attached.takePasted(event),
    });
    this.menu = new SlashMenu(this.text, commands);
    this.attached = new Attachments(console_, (files) => {
      this.draft.files = files;
      this.draft.key = newKey();
    });
    this.button = element('button', { type: 'submit', class: 'primary' }, 'Send');
    this.stop = element('button', { type: 'button', class: 'chip danger', hidden: true, title: 'The text so far stays', onclick: stop }, '■ Stop');
    this.element = element('form', { class: 'composer', onsubmit: (event) => this.submit(event) }, this.menu.element, this.attached.element,
      element('div', { class: 'line' },
        element('button', { type: 'button', class: 'chip', disabled: !console_.may('run'), title: 'Attach files', 'aria-label': 'Attach files', onclick: () => this.attached.choose() }, '+'),
        this.attached.picker, this.text, this.stop, this.button),
      element('p', { class: 'hint keys mouse-only' }, 'Enter sends · Shift Enter begins a new line · / lists commands'));
  }

  takeDropped(target) {
    this.attached.takeDropped(target);
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
    this.text.value = localStorage.getItem(DRAFT + session) ?? '';
    this.isBusy = isBusy;
    this.drawSending();
    this.attached.show(this.draft.files);
    this.menu.changed();
    this.grow();
  }

  focus() {
    if (window.matchMedia('(min-width: 800px)').matches) this.text.focus();
  }

  changed() {
    this.draft.key = newKey();
    if (this.text.value) localStorage.setItem(DRAFT + this.session, this.text.value);
    else localStorage.removeItem(DRAFT + this.session);
    this.menu.changed();
    this.grow();
  }

  grow() {
    this.text.style.height = 'auto';
    this.text.style.height = `${Math.min(this.text.scrollHeight + 2, 240)}px`;
  }

  key(event) {
    if (event.isComposing || this.menu.key(event)) return;
    if (event.key === 'ArrowUp' && !this.text.value) {
      event.preventDefault();
      this.editLast();
    }
    if (event.key !== 'Enter' || event.shiftKey) return;
    event.preventDefault();
    this.element.requestSubmit();
  }

  async submit(event) {
    event.preventDefault();
    const { session, draft } = this;
    const text = this.text.value.trim();
    if (draft.isSending || (!text && !draft.files.length)) return;
    const command = draft.files.length ? null : this.menu.command();
    if (command) {
      this.text.value = '';
      this.changed();
      command.act(command.argument);
      return;
    }
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
    const isSending = Boolean(this.draft.isSending);
    this.button.disabled = isSending || !this.console.may('run');
    this.text.readOnly = isSending;
  }
}
