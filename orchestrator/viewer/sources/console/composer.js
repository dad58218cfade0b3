// Where a message is written: text, files and images, also pasted or dropped ones. A draft is kept.
//
// A draft has a key until it is sent. If the answer to a request is lost, the same draft again has the
// same key, and is said once.

import { element, fill } from '../run/dom.js';
import { count, oneLine } from '../run/format.js';
import { newKey } from './api.js';

const LARGEST = 6_000_000; // bytes of all files: a request has 10 MB, and base64 needs a third more
const MOST = 1000; // files
const DRAFT = 'orchestrator draft ';
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

export class Composer {
  constructor(console_, { send, stop }) {
    this.console = console_;
    this.onSend = send;
    this.drafts = new Map(); // session to {files, key}
    this.text = element('textarea', {
      rows: 1, placeholder: 'Message', 'aria-label': 'Message', disabled: !console_.may('run'),
      oninput: () => this.changed(), onkeydown: (event) => this.key(event), onpaste: (event) => this.paste(event),
    });
    this.picker = element('input', { type: 'file', multiple: true, hidden: true, 'aria-label': 'Files', onchange: () => this.add(this.picker.files) });
    this.chosen = element('div', { class: 'chosen' });
    this.button = element('button', { type: 'submit', class: 'primary' }, 'Send');
    this.stop = element('button', { type: 'button', class: 'chip danger', hidden: true, title: 'What was said so far stays', onclick: stop }, '■ Stop');
    this.element = element('form', { class: 'composer', onsubmit: (event) => this.submit(event) }, this.chosen,
      element('div', { class: 'line' },
        element('button', { type: 'button', class: 'chip', disabled: !console_.may('run'), title: 'Attach files', 'aria-label': 'Attach files', onclick: () => this.picker.click() }, '+'),
        this.picker, this.text, this.stop, this.button));
  }

  // Take what is dropped on an element. Elsewhere, a browser would show the file instead of the page.
  takeDropped(target) {
    target.addEventListener('dragover', (event) => event.preventDefault());
    target.addEventListener('drop', (event) => {
      event.preventDefault();
      if (this.session) this.add(event.dataTransfer.files);
    });
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
    this.drawFiles();
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

  paste(event) {
    const { files } = event.clipboardData;
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  add(files) {
    const { draft } = this;
    const all = [...draft.files, ...files];
    const size = all.reduce((sum, it) => sum + it.size, 0);
    if (size > LARGEST) this.console.shell.say(`The files have ${count(size)} bytes, and a message may have ${count(LARGEST)}.`, { failed: true });
    else if (all.length > MOST) this.console.shell.say(`A message may have ${count(MOST)} files.`, { failed: true });
    else {
      draft.files = all;
      draft.key = newKey();
    }
    this.picker.value = '';
    this.drawFiles();
  }

  drawFiles() {
    for (const image of this.chosen.querySelectorAll('img')) URL.revokeObjectURL(image.src);
    fill(this.chosen, ...(this.session ? this.draft.files : []).map((file, at) => element('button', {
      type: 'button', class: 'chip', title: 'Leave it out', onclick: () => {
        this.draft.files = this.draft.files.toSpliced(at, 1);
        this.draft.key = newKey();
        this.drawFiles();
      },
    }, IMAGES.includes(file.type) ? element('img', { src: URL.createObjectURL(file), alt: '' }) : null, `${oneLine(file.name, 40)} ✕`)));
  }

  async submit(event) {
    event.preventDefault();
    const { session, draft } = this;
    const text = this.text.value.trim();
    if (draft.isSending || (!text && !draft.files.length)) return;
    this.sending(draft, true);
    let isSent = false;
    try {
      isSent = await this.onSend({ session, text, parts: await Promise.all(draft.files.map(part)), key: draft.key });
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

async function part(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = '';
  for (let at = 0; at < bytes.length; at += 32_768) text += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return { type: 'data', media_type: mediaType(file, bytes), data: btoa(text), name: file.name };
}

// The type without its parameters. Browsers do not know those of most source files, which are text.
function mediaType(file, bytes) {
  const [type] = file.type.toLowerCase().split(';');
  if (type) return type.trim();
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return 'text/plain';
  } catch {
    return 'application/octet-stream';
  }
}
