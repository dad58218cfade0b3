// The order of the rows below one task: as they were asked for, or by a column of the grid.

import { COST } from './model.js';

export const SORTED = ['name', 'tokens', 'cost', 'time']; // the columns of the grid, in their order

// Compare two rows by a column; rows that count the rest stay last. Without a column: null.
export function rowOrder(viewer, { by, isFalling }) {
  if (!by) return null;
  const value = by === 'name' ? (row) => name(viewer.model, row) : (row) => figure(viewer, row, by);
  const sign = isFalling ? -1 : 1;
  return (one, other) => {
    if ((one.kind === 'more') !== (other.kind === 'more')) return one.kind === 'more' ? 1 : -1;
    const [first, second] = [value(one), value(other)];
    if (first === second) return number(one) - number(other);
    return (first < second ? -1 : 1) * sign;
  };
}

// The next state of a column that is clicked: largest first, smallest first, as they were asked for.
export function nextSort({ by, isFalling }, column) {
  const isFirst = column !== 'name'; // names begin with A
  if (by !== column) return { by: column, isFalling: isFirst };
  return isFalling === isFirst ? { by, isFalling: !isFirst } : { by: null, isFalling: false };
}

function number(row) {
  return row.number ?? row.members[0];
}

function name(model, row) {
  return row.kind === 'task' ? `${model.agent[row.number]} ${model.name(row.number)}` : row.agent;
}

function figure({ model, rollups }, row, by) {
  const tasks = row.members ?? [row.number];
  const sum = (of) => tasks.reduce((total, task) => total + of(task), 0);
  if (by === 'tokens') return sum((task) => model.tokens(task));
  if (by === 'cost') return sum((task) => model.ofTotal(task, COST));
  if (row.kind === 'task') return model.seconds(row.number) ?? -1;
  const first = tasks.reduce((least, task) => Math.min(least, rollups.first[task]), Infinity);
  const last = tasks.reduce((most, task) => Math.max(most, rollups.final[task]), -Infinity);
  return last < first ? -1 : last - first;
}
