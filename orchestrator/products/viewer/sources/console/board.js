// The board of sibling tasks: the items that they post, claim and finish.

import { element } from '../run/dom.js';
import { count, printable } from '../run/format.js';

const GLYPHS = { free: '○', claimed: '◐', finished: '✓' };
const GROUPS = { free: '', claimed: 'running', finished: 'done' };

export function boardSection(items) {
  const finished = items.filter(([, state]) => state === 'finished').length;
  return element('section', { class: 'board', 'aria-label': 'Board' },
    element('h3', {}, 'Board ', element('span', { class: 'hint' }, `${count(finished)} of ${count(items.length)} finished`)),
    element('ol', {}, ...items.map(line)));
}

function line([number, state, text, by, result]) {
  return element('li', { class: state, value: number, dir: 'auto' },
    element('span', { class: `glyph ${GROUPS[state]}`, 'aria-hidden': 'true' }, GLYPHS[state]),
    ` ${printable(text)} `,
    element('span', { class: 'hint' }, by ? `${state} by ${printable(by)}` : state),
    result ? element('div', { class: 'hint' }, printable(result)) : null);
}
