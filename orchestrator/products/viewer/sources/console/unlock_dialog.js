// Asks for the approval code: who has only the link can look and run, but neither approve nor prune.

import { element, fill } from '../run/dom.js';
import { dialog } from './actions.js';

// Return whether the person has unlocked the sign-in.
export function unlockDialog(console_) {
  return new Promise((done) => {
    const code = element('input', { id: 'approval-code', required: true, autocomplete: 'off', autocapitalize: 'characters', spellcheck: 'false', placeholder: 'XXXXX-XXXXX' });
    const problem = element('p', { class: 'problem', role: 'alert' });
    const send = element('button', { class: 'primary' }, 'Unlock');
    const submit = async (event) => {
      event.preventDefault();
      send.disabled = true;
      try {
        await console_.api.post('console/unlock', { code: code.value });
        done(true);
        made.close();
      } catch (error) {
        fill(problem, `${error.message[0].toUpperCase()}${error.message.slice(1)}.`);
        code.select();
        send.disabled = false;
      }
    };
    const made = dialog('Unlock approvals',
      element('p', {}, 'The server has printed an approval code beside its link. It lets this browser approve calls and administer for 12 hours.'),
      element('form', { onsubmit: submit },
        element('label', { for: 'approval-code' }, 'Approval code'), code,
        element('p', { class: 'hint' }, 'If you signed in with a token, you can enter it here instead.'), problem,
        element('div', { class: 'buttons' }, element('button', { type: 'button', onclick: () => made.close() }, 'Not now'), send)));
    made.classList.add('unlock');
    made.addEventListener('close', () => done(false));
    code.focus();
  });
}
