// Parts of a list: grey rows while it is read, and a menu of what is rarely done to a row.

import { element } from '../run/dom.js';

const SHOWN_AFTER = 150; // milliseconds: a quick answer shows no grey rows

// Rows of the final height that say nothing. `show(isReading)` shows or hides them.
export function greyRows(number) {
  const row = () => element('tr', {}, element('td', { colspan: 10 }, element('span', {})));
  const made = element('tbody', { class: 'grey', hidden: true, 'aria-hidden': 'true' }, ...Array.from({ length: number }, row));
  let timer = null;
  return {
    element: made,
    show(isReading) {
      if (isReading === (timer !== null)) return;
      clearTimeout(timer);
      timer = isReading ? setTimeout(() => { made.hidden = false; }, SHOWN_AFTER) : null;
      made.hidden = true;
    },
  };
}

// A button that opens a menu: [[words, what it does], ...].
export function menuButton(label, entries) {
  return element('button', { type: 'button', class: 'link more', 'aria-label': label, 'aria-haspopup': 'menu', onclick: ({ currentTarget: button }) => open(button, label, entries) }, '⋯');
}

function open(button, label, entries) {
  const menu = element('div', { class: 'menu', role: 'menu', popover: 'auto', 'aria-label': label },
    ...entries.map(([words, does]) => element('button', { type: 'button', role: 'menuitem', onclick: () => {
      menu.hidePopover();
      does();
    } }, words)));
  menu.addEventListener('toggle', ({ newState }) => {
    if (newState !== 'closed') return;
    menu.remove();
    button.focus();
  });
  document.body.append(menu);
  menu.showPopover();
  const { right, bottom } = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, right - menu.offsetWidth)}px`;
  menu.style.top = `${Math.min(bottom, innerHeight - menu.offsetHeight - 8)}px`;
  menu.firstElementChild.focus();
}
