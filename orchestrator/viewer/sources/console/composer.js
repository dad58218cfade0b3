// Where a message is written: text, files and images, also pasted or dropped ones. A draft is kept.

import { element, fill } from '../run/dom.js';
import { count, oneLine } from '../run/format.js';

const LARGEST = 6_000_000; // bytes of all files: a request has 10 MB, and base64 needs a third more
const DRAFT = 'orchestrator draft ';

export class Composer {
  constructor(console_, { send, stop }) {
    this.console = console_;
    this.onSend = send;
    this.files = [];
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
        element('button', { type: 'button', class: 'chip', title: 'Attach files', 'aria-label': 'Attach files', onclick: () => this.picker.click() }, '+'),
        this.picker, this.text, this.stop, this.button));
    this.element.addEventListener('dragover', (event) => event.preventDefault());
    this.element.addEventListener('drop', (event) => {
      event.preventDefault();
      this.add(event.dataTransfer.files);
    });
  }

  set isBusy(isBusy) {
    this.stop.hidden = !isBusy || !this.console.may('steer');
    this.button.textContent = isBusy ? 'Queue' : 'Send';
    this.button.title = isBusy ? 'The next turn reads it' : '';
  }

  open(session) {
    this.session = session;
    this.files = [];
    this.text.value = session ? localStorage.getItem(DRAFT + session) ?? '' : '';
    this.isBusy = false;
    this.drawFiles();
    this.grow();
  }

  focus() {
    if (window.matchMedia('(min-width: 800px)').matches) this.text.focus();
  }

  changed() {
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
    const all = [...this.files, ...files];
    const size = all.reduce((sum, it) => sum + it.size, 0);
    if (size > LARGEST) this.console.shell.say(`The files have ${count(size)} bytes, and a message may have ${count(LARGEST)}.`, { failed: true });
    else this.files = all;
    this.picker.value = '';
    this.drawFiles();
  }

  drawFiles() {
    fill(this.chosen, ...this.files.map((file, at) => element('button', {
      type: 'button', class: 'chip', title: 'Leave it out', onclick: () => {
        this.files.splice(at, 1);
        this.drawFiles();
      },
    }, `📎 ${oneLine(file.name, 40)} ✕`)));
  }

  async submit(event) {
    event.preventDefault();
    const text = this.text.value.trim();
    if (!text && !this.files.length) return;
    this.button.disabled = true;
    const { session } = this;
    const isSent = await this.onSend({ text, parts: await Promise.all(this.files.map(part)) });
    this.button.disabled = false;
    if (!isSent) return;
    localStorage.removeItem(DRAFT + session);
    if (session === this.session) {
      this.text.value = '';
      this.files = [];
      this.drawFiles();
      this.grow();
    }
  }
}

async function part(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = '';
  for (let at = 0; at < bytes.length; at += 32_768) text += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return { type: 'data', media_type: file.type || 'application/octet-stream', data: btoa(text), name: file.name };
}
