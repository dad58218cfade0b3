// Delete old runs for good: say how many go and what is kept, before and after.

import { element, fill } from '../run/dom.js';
import { count, counted } from '../run/format.js';
import { dialog } from './actions.js';

const DAY = 86_400;
const AGES = [[7, 'a week'], [30, '30 days'], [90, '90 days'], [365, 'a year'], [0, 'any time']];
const USUAL = 30;

export function pruneDialog(console_) {
  let asked = 0;
  const age = element('select', { 'aria-label': 'Older than', onchange: () => look() },
    ...AGES.map(([days, words]) => element('option', { value: days }, words)));
  age.value = String(USUAL);
  const words = element('p', { role: 'status' });
  const kept = element('p', { class: 'hint' });
  const prune = element('button', { class: 'primary danger', disabled: true, onclick: () => go() }, 'Delete');
  const close = element('button', { type: 'button', onclick: () => made.close() }, 'Keep all');
  const made = dialog('Prune runs', element('label', { class: 'age' }, 'Runs and conversations with nothing new for ', age),
    words, kept, element('div', { class: 'buttons' }, close, prune));

  const ask = (isDry) => console_.api.post('v1/runs/prune', { older_than: Number(age.value) * DAY, dry_run: isDry });
  const fail = (error) => {
    fill(words, error.message);
    words.className = 'failed';
  };

  async function look() {
    asked += 1;
    const own = asked;
    prune.disabled = true;
    words.className = '';
    fill(words, 'Counting …');
    fill(kept);
    try {
      const found = await ask(true);
      if (own !== asked) return;
      fill(words, found.runs ? `${count(found.runs)} ${found.runs === 1 ? 'goes' : 'go'} for good, with all that was said and done in ${found.runs === 1 ? 'it' : 'them'}.` : 'None is that old.');
      fill(kept, keeps(found));
      prune.disabled = !found.runs;
      prune.textContent = found.runs ? `Delete ${count(found.runs)}` : 'Delete';
    } catch (error) {
      if (own === asked) fail(error);
    }
  }

  async function go() {
    prune.disabled = true;
    age.disabled = true;
    fill(words, 'Deleting …');
    try {
      const { runs, freed } = await ask(false);
      fill(words, `${counted(runs, 'run')} deleted${freed ? `, ${count(Math.round(freed / 1000))} kB freed` : ''}.`);
      prune.remove();
      close.textContent = 'Close';
      close.focus();
    } catch (error) {
      fail(error);
      age.disabled = false;
      prune.disabled = false;
    }
  }
  look();
}

function keeps({ active, journals_in_use: inUse }) {
  const stay = active ? `${counted(active, 'run')} that ${active === 1 ? 'is' : 'are'} under way, ${active === 1 ? 'waits' : 'wait'} or ${active === 1 ? 'has' : 'have'} an unread reply, ` : '';
  const elsewhere = inUse ? ` ${counted(inUse, 'journal')} that another process writes ${inUse === 1 ? 'is' : 'are'} left out.` : '';
  return `Kept: ${stay}everything newer, who did what (the audit), and what was spent of budgets.${elsewhere}`;
}
