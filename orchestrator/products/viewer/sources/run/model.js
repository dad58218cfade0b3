// One run as columns: a task is a number, and each of its attributes is at that number.
// Parents come before their children, so whatever is rolled up is one pass backwards.

import { GROUP_NAMES, groupOf } from './status.js';

export const USAGE = [
  'calls', 'input_tokens', 'output_tokens', 'micro_usd', 'unpriced', 'cached_tokens', 'reasoning_tokens',
  'estimated', 'cache_written_tokens', 'saved_micro_usd',
];
export const [CALLS, INPUT, OUTPUT, COST, UNPRICED, CACHED, REASONING, ESTIMATED, , SAVED] = USAGE.keys();
const WIDTH = USAGE.length;
const SCRIPT = 'script'; // the agent that runs scripts
const STOPPED = new Set(['cancelled', 'timed_out', 'lost']);

export class Model {
  constructor() {
    this.ids = [];
    this.numbers = new Map();
    this.parent = []; // -1 is nobody
    this.scripts = []; // the numbers of the tasks that run scripts
    this.sources = new Map(); // their scripts: {goal, code}
    this.children = [];
    this.depth = [];
    this.agent = [];
    this.goal = [];
    this.label = [];
    this.path = [];
    this.mode = [];
    this.reason = [];
    this.status = [];
    this.requested = [];
    this.started = []; // null: not yet
    this.ended = [];
    this.error = [];
    this.needs = [];
    this.chosen = []; // the model, effort and budget that its parent chose, as text
    this.own = []; // what each has used itself, a number for each of USAGE
    this.total = []; // the same with all below it
    this.models = []; // who answered last
    this.tools = []; // how many calls of tools were answered; null if that is not known
    this.asks = []; // its open approval questions, as text
    this.abandoned = []; // its caller stopped waiting for it or was cancelled, which cancelled it
    this.waits = new Map(); // when the model calls of a task waited for their provider: [[from, to], ...]
    this.turns = []; // when the session worked: [start, end or null]
    this.awaited = []; // the detached tasks that a tool call of the session waited for: [since, id]
    this.start = null; // when the first task was requested
    this.last = null; // the time of the last fact
  }

  get size() {
    return this.ids.length;
  }

  add(task) {
    const number = this.ids.length;
    const parent = task.parent === null ? -1 : this.numbers.get(task.parent);
    this.ids.push(task.id);
    this.numbers.set(task.id, number);
    this.parent.push(parent);
    this.children.push([]);
    this.depth.push(parent < 0 ? 0 : this.depth[parent] + 1);
    this.agent.push(task.agent);
    if (task.agent === SCRIPT) this.scripts.push(number);
    this.goal.push(task.goal ?? '');
    this.label.push(task.label ?? '');
    this.path.push(task.path);
    this.mode.push(task.mode);
    this.reason.push(task.reason ?? '');
    this.status.push(task.status ?? 'queued');
    this.requested.push(task.requested);
    this.started.push(task.started ?? null);
    this.ended.push(task.ended ?? null);
    this.error.push(task.error ?? '');
    this.needs.push(task.needs ?? []);
    this.chosen.push(task.chosen ?? '');
    this.models.push(task.model ?? '');
    this.tools.push(task.tools === undefined ? 0 : task.tools);
    this.asks.push(task.ask ?? '');
    this.abandoned.push(task.abandoned ?? false);
    for (let field = 0; field < WIDTH; field += 1) {
      this.own.push(0);
      this.total.push(0);
    }
    if (parent >= 0) this.children[parent].push(number);
    if (this.start === null) this.start = task.requested;
    this.see(task.requested);
    return number;
  }

  see(at) {
    if (this.last === null || at > this.last) this.last = at;
  }

  spend(number, usage) {
    for (let field = 0; field < WIDTH; field += 1) {
      const amount = usage[field];
      if (!amount) continue;
      this.own[number * WIDTH + field] += amount;
      for (let above = number; above >= 0; above = this.parent[above]) {
        this.total[above * WIDTH + field] += amount;
      }
    }
  }

  // How many model calls have a cost that is not known, or not all of it.
  unknownOwn(number) {
    return this.ofOwn(number, UNPRICED) + this.ofOwn(number, ESTIMATED);
  }

  unknownTotal(number) {
    return this.ofTotal(number, UNPRICED) + this.ofTotal(number, ESTIMATED);
  }

  ofOwn(number, field) {
    return this.own[number * WIDTH + field];
  }

  ofTotal(number, field) {
    return this.total[number * WIDTH + field];
  }

  tokens(number) {
    return this.ofTotal(number, INPUT) + this.ofTotal(number, OUTPUT);
  }

  // The script that a task runs, or null; a goal that was cut is none.
  script(number) {
    if (this.agent[number] !== SCRIPT) return null;
    const goal = this.goal[number];
    if (goal && !this.sources.has(number)) this.sources.set(number, parsed(goal));
    return this.sources.get(number) ?? null;
  }

  name(number) {
    return this.label[number] || (this.script(number)?.goal ?? this.goal[number]);
  }

  // When it ended; a running task lasts until the last fact.
  until(number) {
    return this.ended[number] ?? this.last;
  }

  // Whether the parent of a task stopped it and went on. A parent that was stopped itself had waited for it.
  isStoppedByParent(number) {
    return this.abandoned[number] && !STOPPED.has(this.status[this.parent[number]]);
  }

  // The mode that people see: a task beside its function is detached for them.
  shownMode(number) {
    return this.reason[number] === 'runs_beside' ? 'detached' : this.mode[number];
  }

  // How long its model calls waited for their provider.
  waited(number) {
    return (this.waits.get(number) ?? []).reduce((sum, [from, to]) => sum + to - from, 0);
  }

  // How long it took; null has not begun.
  seconds(number) {
    const started = this.started[number];
    return started === null ? null : this.until(number) - started;
  }

  // All attributes of a task, under the names of the Python tree.
  task(number) {
    const usage = (column) =>
      Object.fromEntries(USAGE.map((name, field) => [name, column[number * WIDTH + field]]));
    return {
      id: this.ids[number],
      parent: this.parent[number] < 0 ? null : this.ids[this.parent[number]],
      agent: this.agent[number],
      goal: this.goal[number],
      label: this.label[number],
      path: this.path[number],
      mode: this.mode[number],
      reason: this.reason[number],
      status: this.status[number],
      requested: this.requested[number],
      started: this.started[number],
      ended: this.ended[number],
      usage: usage(this.own),
      micro_usd: this.ofOwn(number, COST),
      total: usage(this.total),
      error: this.error[number],
      needs: this.needs[number],
    };
  }
}

function parsed(goal) {
  try {
    const { code, goal: purpose = '' } = JSON.parse(goal);
    return typeof code === 'string' ? { code, goal: String(purpose) } : null;
  } catch {
    return null;
  }
}

// How many tasks of each group are in each subtree, the task itself included, and when a
// subtree began and ended.
export class Rollups {
  constructor(model) {
    const size = model.size;
    this.tasks = new Int32Array(size).fill(1);
    this.first = new Float64Array(size);
    this.final = new Float64Array(size);
    this.groups = Object.fromEntries(GROUP_NAMES.map((name) => [name, new Int32Array(size)]));
    this.own = new Array(size);
    this.waited = new Float64Array(size);
    for (const number of model.waits.keys()) this.waited[number] = model.waited(number);
    for (let number = 0; number < size; number += 1) {
      this.own[number] = groupOf(model.status[number]);
      this.groups[this.own[number]][number] = 1;
      this.first[number] = model.started[number] ?? Infinity;
      this.final[number] = model.started[number] === null ? -Infinity : model.until(number);
    }
    const columns = Object.values(this.groups);
    for (let number = size - 1; number > 0; number -= 1) {
      const parent = model.parent[number];
      if (parent < 0) continue;
      this.tasks[parent] += this.tasks[number];
      this.waited[parent] += this.waited[number];
      for (const column of columns) column[parent] += column[number];
      if (this.first[number] < this.first[parent]) this.first[parent] = this.first[number];
      if (this.final[number] > this.final[parent]) this.final[parent] = this.final[number];
    }
  }

  // How many descendants of a task are in a group.
  below(number, group) {
    return this.groups[group][number] - (this.own[number] === group ? 1 : 0);
  }
}
