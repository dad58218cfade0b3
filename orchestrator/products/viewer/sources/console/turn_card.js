// A turn without an answer, in its place: how it has failed, or that a person has stopped it.

import { element } from '../run/dom.js';
import { duration, printable } from '../run/format.js';
import { describe } from '../run/status.js';

// actions: [[words, title, act], ...]; the first one is the most useful.
export function turnCard(turn, actions) {
  const { glyph, word } = describe(turn.ending);
  const isStopped = turn.ending === 'cancelled';
  const buttons = (actions ?? []).map(([words, title, act]) => element('button', { type: 'button', class: 'chip', title, onclick: async (event) => {
    const { currentTarget: button } = event;
    button.disabled = true;
    await act();
    button.disabled = false;
  } }, words));
  const took = turn.ended === null ? '' : ` It took ${duration(turn.ended - turn.started)}.`;
  const wait = turn.retry_after ? ` The provider accepts another request in ${duration(turn.retry_after)}.` : '';
  const details = [turn.code ? `kind: ${turn.code}` : '', turn.traceback].filter(Boolean).join('\n\n');
  return element('section', { class: `turn-card ${isStopped ? 'stopped' : 'failed-turn'}`, 'data-turn': turn.number, 'aria-label': isStopped ? 'Stopped turn' : 'Failed turn' },
    isStopped
      ? element('p', {}, '■ Stopped. The text so far stays.')
      : element('p', {}, element('b', { class: 'failed' }, `${glyph} This turn ${word === 'failed' ? 'failed' : `failed: ${word}`}`), ` · ${printable(turn.error || 'no reason is known')}`),
    isStopped ? null : element('p', { class: 'hint' }, `Your message is kept.${took}${wait}`),
    buttons.length ? element('div', { class: 'actions' }, ...buttons) : null,
    details && !isStopped ? element('details', {}, element('summary', {}, 'Details'), element('pre', { class: 'code', tabindex: 0 }, printable(details))) : null);
}
