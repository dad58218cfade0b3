// What people do to a task: approve or deny its calls, send it a message, cancel it with all below.
//
// A dialog says what will happen before, and what has happened after.

import { element, fill } from '../run/dom.js';
import { count, counted, duration, money, oneLine, printable } from '../run/format.js';

const RECEIPTS = {
  waiting: 'Queued: it will be seen before the next model call.',
  seen: 'Seen.',
  too_late: 'Too late: the task ended before it could see this.',
  gone: 'Not sent: the task had ended already.',
};

// Answer a question. The first answer counts; a second one is told who gave the first.
export async function answer(console_, approval, verdict, reason = '') {
  try {
    await console_.api.post(`v1/approvals/${approval.id}`, { answer: verdict, reason });
    console_.shell.say(`${verdict === 'deny' ? 'Denied' : 'Approved'}: ${oneLine(approval.subject, 80)}`);
    return true;
  } catch (error) {
    console_.shell.say(error.message, { failed: true });
    return false;
  }
}

// The box of a call that waits: all of what would run is in sight.
export function approvalBox(console_, approval, { keys = false } = {}) {
  const may = console_.may('approve');
  const reason = element('input', { type: 'text', placeholder: 'Why not? The agent reads it.', 'aria-label': 'Reason of a denial' });
  const button = (words, verdict, kind, title) => element('button', {
    type: 'button', class: kind, disabled: !may, title: may ? title : 'Your key may not answer approvals',
    onclick: (event) => {
      for (const it of event.target.closest('.ask').querySelectorAll('button')) it.disabled = true;
      answer(console_, approval, verdict, reason.value).then((isDone) => {
        if (!isDone) for (const it of box.querySelectorAll('button')) it.disabled = !may;
      });
    },
  }, words);
  const box = element('div', { class: 'ask', role: 'group', 'data-own': approval.id, 'aria-label': `Approval needed: ${approval.tool}` },
    element('h3', {}, '! Approval needed ', element('span', { class: 'badge' }, oneLine(approval.tool, 60))),
    element('pre', { class: 'subject', tabindex: 0 }, printable(approval.subject)),
    approval.details && approval.details !== approval.subject ? element('pre', { class: 'given', tabindex: 0 }, printable(approval.details)) : null,
    approval.why ? element('p', { class: 'hint' }, printable(approval.why)) : null,
    approval.deadline ? element('p', { class: 'hint' }, `Auto-denies in ${duration(Math.max(0, approval.deadline - console_.now()))}.`) : null,
    element('div', { class: 'actions' },
      button(keys ? 'Approve (a)' : 'Approve', 'once', 'approve', 'This call, once'),
      button('Approve for this task', 'task', '', 'Also the same call later in this task and below it'),
      button('Approve for this run', 'session', '', 'Also the same call later in the whole run')),
    element('div', { class: 'actions' }, reason, button(keys ? 'Deny (d)' : 'Deny', 'deny', 'deny', 'The agent is told, and goes on without it')));
  return box;
}

export function dialog(title, ...content) {
  const made = element('dialog', { class: 'action', 'aria-label': title }, element('h2', {}, title), ...content);
  made.addEventListener('close', () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}

// Send a message to a running task, and show what became of it.
export function messageDialog(console_, task, name) {
  const text = element('textarea', { rows: 4, required: true, 'aria-label': 'Message', placeholder: 'It is read before the next model call.' });
  const receipt = element('p', { class: 'receipt', role: 'status' });
  const send = element('button', { class: 'primary' }, 'Send');
  const form = element('form', { onsubmit: async (event) => {
    event.preventDefault();
    send.disabled = true;
    fill(receipt, 'Sending …');
    try {
      const sent = await console_.api.post(`v1/tasks/${task}/steer`, { text: text.value });
      show(sent);
      if (sent.state === 'waiting') follow(sent.message, text.value);
    } catch (error) {
      fill(receipt, error.message);
      receipt.className = 'receipt failed';
      send.disabled = false;
    }
  } }, text, receipt, element('div', { class: 'buttons' }, element('button', { type: 'button', onclick: () => made.close() }, 'Close'), send));
  const show = ({ state }) => {
    receipt.className = `receipt ${{ seen: 'done', too_late: 'failed', gone: 'failed' }[state] ?? 'waiting'}`;
    fill(receipt, RECEIPTS[state]);
    receipt.dataset.state = state;
  };
 
  const follow = async (key, words) => {
    const stop = console_.live.watch(`task:${task}`, async () => {
      if (!made.isConnected) return stop();
      const page = await console_.api.get(`v1/tasks/${task}/transcript?limit=1000`);
      if (page.data.some((it) => it.id === key || (it.aside && it.text.includes(words)))) {
        show({ state: 'seen' });
        return stop();
      }
      const { ended } = await console_.api.get(`v1/tasks/${task}`);
      if (ended) {
        show({ state: 'too_late' });
        return stop();
      }
      return null;
    });
  };
  const made = dialog(`Message to ${oneLine(name, 60)}`, form);
  text.focus();
}

// Cancel a task with all below it: say how many stop, and when all of them have ended.
export function cancelDialog(console_, { id, name, active, all, cost, unknown, isRun }) {
  const words = element('p', { role: 'status' },
    `${count(active)} of ${counted(all, 'agent')} ${active === 1 ? 'is' : 'are'} active and will stop. `,
    `${money(cost, unknown)} are spent already. What was said and found so far is kept.`);
  const stop = element('button', { class: 'primary danger', onclick: async () => {
    stop.disabled = true;
    fill(words, `Cancelling ${counted(active, 'agent')} …`);
    try {
      await console_.api.post(isRun ? `v1/runs/${id}/cancel` : `v1/tasks/${id}/cancel`);
      fill(words, 'All of them have ended.');
      stop.remove();
      close.textContent = 'Close';
      close.focus();
    } catch (error) {
      fill(words, error.message);
      words.className = 'failed';
      stop.disabled = false;
    }
  } }, isRun ? 'Cancel the run' : 'Cancel the subtree');
  const close = element('button', { type: 'button', onclick: () => made.close() }, 'Keep it running');
  const made = dialog(`Cancel ${oneLine(name, 60)}?`, words, element('div', { class: 'buttons' }, close, stop));
}

// Delete a run: it is cancelled first, if it is under way.
export function deleteDialog(console_, run, name) {
  const words = element('p', { role: 'status' }, run.ended
    ? 'It is listed nowhere any more. The journal keeps its facts until it is pruned.'
    : 'It is under way: all its agents stop first. Then it is listed nowhere any more.');
  const remove = element('button', { class: 'primary danger', onclick: async () => {
    remove.disabled = true;
    try {
      await console_.api.remove(`v1/runs/${run.id}`);
      made.close();
      console_.shell.say(`Deleted: ${oneLine(name, 80)}`);
    } catch (error) {
      fill(words, error.message);
      words.className = 'failed';
      remove.disabled = false;
    }
  } }, 'Delete');
  const keep = element('button', { type: 'button', onclick: () => made.close() }, 'Keep it');
  const made = dialog(`Delete ${oneLine(name, 60)}?`, words, element('div', { class: 'buttons' }, keep, remove));
}
