// The runs that failed, the tasks that stopped their branches, and which of them were read.
//
// A failure that the program or an agent has handled does not make its run fail, and is not here.
//
// What was read is known to this browser alone: no one else is told that a failure was seen.

import { groupOf } from '../run/status.js';

const READ = 'orchestrator failures read';
const DAY = 86_400;
const MOST = 20; // runs
const SHOWN = 3; // tasks of a run
const SOON = 400; // milliseconds: failures come in bursts
const LATER = 3_000; // and a run that fails a thousand times is not asked about each of them

// How many tasks of a run have ended badly.
export function badTasks(tasks) {
  return Object.entries(tasks).reduce((sum, [status, number]) => sum + (groupOf(status) === 'failed' ? number : 0), 0);
}

export class Failures {
  constructor(console_, changed) {
    this.console = console_;
    this.changed = changed;
    this.items = new Map(); // run to {run, agent, about, bad, total, tasks, last}
    this.stale = new Map(); // run to its summary
    this.hasRead = false;
    window.addEventListener('storage', ({ key }) => key === READ && this.changed());
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  // The latest first.
  get list() {
    return [...this.items.values()].sort((one, other) => other.last - one.last).slice(0, MOST);
  }

  get unread() {
    const marks = this.marks();
    return this.list.filter((it) => this.isUnread(it, marks));
  }

  isUnread(item, marks = this.marks()) {
    return item.last > Math.max(marks.until, marks.runs[item.run] ?? 0);
  }

  // {until: all before this time are read, runs: {run: the time of its last failure that was}}
  marks() {
    try {
      const { until, runs } = JSON.parse(localStorage.getItem(READ));
      if (Number.isFinite(until)) return { until, runs: { ...runs } };
    } catch {
      // It is written anew.
    }
    return { until: this.console.now() - DAY, runs: {} };
  }

  markRead(...items) {
    const marks = this.marks();
    for (const it of items) marks.runs[it.run] = it.last;
    const latest = Object.entries(marks.runs).sort((one, other) => other[1] - one[1]).slice(0, 10 * MOST);
    localStorage.setItem(READ, JSON.stringify({ until: marks.until, runs: Object.fromEntries(latest) }));
    this.changed();
  }

  // All runs that have failures, as far as they are new.
  async read() {
    try {
      const { data } = await this.console.api.get(`v1/runs?failures=true&status=failed&limit=${MOST}`);
      const known = new Set(data.map((it) => it.id));
      for (const run of this.items.keys()) if (!known.has(run)) this.items.delete(run);
      this.receive(data, []);
      this.hasRead = true;
      this.changed();
    } catch {
      // It is read again with the next change.
    }
  }

  receive(runs, deleted) {
    for (const run of runs) {
      const bad = badTasks(run.tasks);
      if (!bad || run.status !== 'failed') deleted = [...deleted, run.id];
      else if (bad !== this.items.get(run.id)?.bad) this.stale.set(run.id, { ...run, bad });
    }
    const gone = deleted.filter((id) => this.stale.delete(id) | this.items.delete(id));
    if (gone.length) this.changed();
    if (this.stale.size) this.timer ??= setTimeout(() => this.readStale(), this.items.size ? LATER : SOON);
  }

  async readStale() {
    const stale = [...this.stale.values()].sort((one, other) => other.created - one.created).slice(0, MOST);
    this.stale.clear();
    await Promise.all(stale.map((run) => this.readRun(run)));
    this.timer = null;
    this.changed();
  }

  async readRun({ id, agent, about, bad }) {
    try {
      const { data, total } = await this.console.api.get(`v1/runs/${id}/failures?limit=${SHOWN}`);
      const last = data[0]?.ended ?? this.console.now();
      if (data.length) this.items.set(id, { run: id, agent, about, bad, total, tasks: data, last });
    } catch {
      // It was deleted, or is asked for with the next change.
    }
  }
}
