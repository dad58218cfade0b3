// Copies text to the clipboard, also where the page has no secure address.

import { element } from './dom.js';

const SHOWN = 1500; // milliseconds that a button says that it has copied

export async function copy(text) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = element('textarea', { class: 'unseen', 'aria-hidden': 'true' });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand('copy');
  field.remove();
}

// A button that copies a text: `text` gets the button, which may have been moved since it was made.
export function copyButton(text, label = 'Copy') {
  return element('button', { type: 'button', class: 'quiet copy', 'aria-label': label, onclick: async (event) => {
    const button = event.currentTarget;
    await copy(text(button));
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, SHOWN);
  } }, 'Copy');
}
