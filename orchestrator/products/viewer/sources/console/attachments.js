// Files that go with a message: chosen, dropped or pasted; shown as buttons that take one out again.

import { element, fill } from '../run/dom.js';
import { count, oneLine } from '../run/format.js';

const LARGEST = 6_000_000; // bytes of all files: a request has 10 MB, and base64 needs a third more
const MOST = 1000; // files
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

export class Attachments {
  // changed: called when a person has changed which files there are.
  constructor(console_, changed) {
    this.console = console_;
    this.changed = changed;
    this.files = [];
    this.picker = element('input', { type: 'file', multiple: true, hidden: true, 'aria-label': 'Files', onchange: () => this.add(this.picker.files) });
    this.element = element('div', { class: 'chosen' });
  }

  choose() {
    this.picker.click();
  }

  // Take what is dropped on an element. Elsewhere, a browser would show the file instead of the page.
  takeDropped(target, mayAdd = () => true) {
    target.addEventListener('dragover', (event) => event.preventDefault());
    target.addEventListener('drop', (event) => {
      event.preventDefault();
      if (mayAdd()) this.add(event.dataTransfer.files);
    });
  }

  takePasted(event) {
    const { files } = event.clipboardData;
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  show(files) {
    this.files = files;
    this.draw();
  }

  add(files) {
    const all = [...this.files, ...files];
    const size = all.reduce((sum, it) => sum + it.size, 0);
    this.picker.value = '';
    if (size > LARGEST) this.console.shell.say(`The files have ${count(size)} bytes, and a message may have ${count(LARGEST)}.`, { failed: true });
    else if (all.length > MOST) this.console.shell.say(`A message may have ${count(MOST)} files.`, { failed: true });
    else this.change(all);
  }

  change(files) {
    this.show(files);
    this.changed(files);
  }

  draw() {
    for (const image of this.element.querySelectorAll('img')) URL.revokeObjectURL(image.src);
    fill(this.element, ...this.files.map((file, at) => element('button', {
      type: 'button', class: 'chip', title: 'Leave it out', 'aria-label': `Leave out ${oneLine(file.name, 40)}`,
      onclick: () => this.change(this.files.toSpliced(at, 1)),
    }, IMAGES.includes(file.type) ? element('img', { src: URL.createObjectURL(file), alt: '' }) : null, `${oneLine(file.name, 40)} ✕`)));
  }
}

// The files as a request has them.
export function parts(files) {
  return Promise.all(files.map(part));
}

async function part(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = '';
  for (let at = 0; at < bytes.length; at += 32_768) text += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return { type: 'data', media_type: await mediaType(file), data: btoa(text), name: file.name };
}

// The type without its parameters. Browsers do not know those of most source files, which are text.
export async function mediaType(file) {
  const [type] = file.type.toLowerCase().split(';');
  if (type) return type.trim();
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
    return 'text/plain';
  } catch {
    return 'application/octet-stream';
  }
}
