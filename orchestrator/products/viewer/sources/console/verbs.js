// What people do to a run besides steering it: pause its starts, retry a task, fork from one, resume it.
//
// A dialog says what is kept, what is done again and what that had cost, before anything begins.

import { element, fill } from '../run/dom.js';
import { counted, money, oneLine } from '../run/format.js';
import { groupOf } from '../run/status.js';
import { dialog } from './actions.js';

const RETRIED = ['failed', 'cancelled', 'done'];

// Ask before something begins. `begin` returns the run to show.
function confirmDialog(console_, title, sentences, word, begin) {
  const words = element('p', { role: 'status' }, sentences.join(' '));
  const go = element('button', { class: 'primary', onclick: async () => {
    go.disabled = true;
    try {
      const run = await begin();
      made.close();
      console_.router.go(['runs', run.id]);
    } catch (error) {
      fill(words, error.message);
      words.className = 'failed';
      go.disabled = false;
    }
  } }, word);
  const keep = element('button', { type: 'button', onclick: () => made.close() }, 'Leave it');
  const made = dialog(title, words, element('div', { class: 'buttons' }, keep, go));
  go.focus();
}

export function canRetry(status) {
  return RETRIED.includes(groupOf(status));
}

export function retryDialog(console_, { id, name, tasks, cost, unknown, isRun }) {
  const below = tasks > 1 ? `, with the ${counted(tasks - 1, 'task')} below it` : '';
  const again = `The ${isRun ? 'whole of it' : 'task'} begins anew${below}: that had cost ${money(cost, unknown)}.`;
  const kept = isRun
    ? 'To keep what has succeeded, retry a task below instead.'
    : 'Those above it go on from there, and so do tasks that depended on it or were cancelled because of it. All else is kept, and is not paid again.';
  confirmDialog(console_, `Retry ${oneLine(name, 60)}?`,
    ['A new run begins; this one stays as it is.', again, kept], 'Retry',
    () => console_.api.post(`v1/tasks/${id}/retry`));
}

export function forkDialog(console_, { id, name, isRun }) {
  const kept = isRun
    ? 'All of it is done again, and is paid again.'
    : 'What was before this task is kept, and is not paid again. The task and all that came after it are done again, and are paid again.';
  confirmDialog(console_, `Fork from ${oneLine(name, 60)}?`,
    ['A new run begins; this one stays as it is.', kept], 'Fork',
    () => console_.api.post(`v1/tasks/${id}/fork`));
}

export function resumeDialog(console_, { run, name, cost, unknown }) {
  confirmDialog(console_, `Resume ${oneLine(name, 60)}?`,
    ['Its process died. It goes on from its last step, in the background of this server.',
      `What it has for ${money(cost, unknown)} is kept, and is not paid again; its budgets hold on.`], 'Resume',
    () => console_.api.post(`v1/runs/${run}/resume`));
}

// Start no new task below one, or start them again. It costs nothing and loses nothing, so it is not asked about.
export async function setPaused(console_, { id, name, paused }) {
  try {
    await console_.api.post(`v1/tasks/${id}/${paused ? 'pause' : 'unpause'}`);
    console_.shell.say(paused
      ? `Paused: no new task starts below ${oneLine(name, 60)}. What runs goes on; what it asks for waits.`
      : `Unpaused: tasks below ${oneLine(name, 60)} start again, those that wait first.`);
  } catch (error) {
    console_.shell.say(error.message, { failed: true });
  }
}
