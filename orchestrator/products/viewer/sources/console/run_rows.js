// Puts the rows of the server into the model of a run; `server/console/rows.py` makes them.

import { Model, USAGE } from '../run/model.js';

// Apply one message. Return the model, a new one after a reset, and whether tasks were added.
export function applyRows(model, message) {
  const into = message.reset || model === null ? new Model() : model;
  const before = into.size;
  for (const [id, status, started, ended, error, usage, abandoned, waits, ...fixed] of message.rows) {
    let number = into.numbers.get(id);
    if (number === undefined) {
      const [parent, agent, goal, label, path, mode, reason, requested, needs, chosen] = fixed;
      number = into.add({ id, parent, agent, goal, label, path, mode, reason, requested, needs, chosen, tools: null });
    }
    into.status[number] = status;
    into.started[number] = started;
    into.ended[number] = ended;
    into.error[number] = error;
    into.abandoned[number] = abandoned;
    if (waits.length) into.waits.set(number, waits);
    const change = USAGE.map((_, field) => usage[field] - into.ofOwn(number, field));
    if (change.some(Boolean)) into.spend(number, change);
  }
  if (message.turns) Object.assign(into, { turns: message.turns, awaited: message.awaited });
  return { model: into, isNew: into !== model, hasGrown: into.size > before };
}

// The time of the last thing that happened in a run in which nothing goes on.
export function lastMoment(model) {
  let last = model.start;
  for (let number = 0; number < model.size; number += 1) {
    last = Math.max(last, model.requested[number], model.started[number] ?? 0, model.ended[number] ?? 0);
  }
  return last;
}
