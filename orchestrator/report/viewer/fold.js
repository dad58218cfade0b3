// Which rows of a tree are shown: the folding policy of `delegation/tree/collapse.py`, which see. Tests
// compare the rows of both.
//
// What the policy has opened stays as it is until somebody opens or folds it: a row that is folded
// by hand must not let others open elsewhere.

export const GROUPED = 8; // so many siblings of one agent are shown one by one
export const SHOWN = 4; // so many of a group are shown when it is opened: those that matter most

const [WAITING, RUNNING, FAILED, QUIET] = [0, 1, 2, 3];

export class Folding {
  constructor(model, rollups) {
    this.model = model;
    this.rollups = rollups;
    this.grouped = GROUPED;
    this.opened = new Set(); // the keys of open rows
    this.kept = new Map(); // of a row that shows only some below it: which, by key
    this.members = new Map(); // how many of a group are shown, where that is not the usual
    this.extra = new Map(); // members of a group that are shown because somebody looked for them
  }

  task(number) {
    return { kind: 'task', key: this.model.ids[number], number };
  }

  // What stands below a task or in a group when it is open.
  units(unit) {
    if (unit.kind === 'group') {
      const most = this.members.get(unit.key) ?? SHOWN;
      const chosen = new Set([...this.matter(unit.members, most), ...this.extra.get(unit.key) ?? []]);
      return this.withRest(unit, unit.members.filter((it) => chosen.has(it)).map((it) => this.task(it)));
    }
    const { model } = this;
    const byAgent = new Map();
    for (const child of model.children[unit.number]) {
      const agent = model.agent[child];
      if (!byAgent.has(agent)) byAgent.set(agent, []);
      byAgent.get(agent).push(child);
    }
    const units = [];
    for (const child of model.children[unit.number]) {
      const agent = model.agent[child];
      const members = byAgent.get(agent);
      if (members.length <= this.grouped) units.push(this.task(child));
      else if (members[0] === child) {
        units.push({ kind: 'group', key: `${unit.key}/${agent}`, parent: unit.number, agent, members });
      }
    }
    return units;
  }

  // Those of a group that matter most, in their order: urgent, then large, then the first.
  matter(members, most) {
    if (members.length <= most) return members;
    const { model, rollups } = this;
    const chosen = new Set();
    const take = (those) => {
      for (const it of those) if (chosen.size < most) chosen.add(it);
    };
    for (const urgency of [WAITING, RUNNING, FAILED]) {
      take(members.filter((it) => this.urgency(it) === urgency));
    }
    take(members.filter((it) => rollups.tasks[it] > 1).sort((one, other) =>
      rollups.tasks[other] - rollups.tasks[one] || model.tokens(other) - model.tokens(one)
      || one - other));
    take(members);
    return [...chosen].sort((one, other) => one - other);
  }

  // A row for those that are not kept, behind those that are.
  withRest(unit, kept) {
    const shown = new Set(kept.flatMap((it) => it.members ?? [it.number]));
    const all = unit.members ?? this.model.children[unit.number];
    const members = all.filter((it) => !shown.has(it));
    if (!members.length) return kept;
    const parent = unit.parent ?? unit.number;
    const agent = unit.agent ?? '';
    return [...kept, { kind: 'more', key: `${unit.key}/…`, of: unit, parent, agent, members }];
  }

  urgency(number) {
    const { groups } = this.rollups;
    if (groups.waiting[number]) return WAITING;
    if (groups.running[number] || groups.interrupted[number]) return RUNNING;
    return groups.failed[number] ? FAILED : QUIET;
  }

  // How urgent what a unit hides is while it is folded.
  hiddenUrgency(unit) {
    if (unit.kind !== 'task') {
      return unit.members.reduce((worst, it) => Math.min(worst, this.urgency(it)), QUIET);
    }
    const below = (group) => this.rollups.below(unit.number, group);
    if (below('waiting')) return WAITING;
    if (below('running') || below('interrupted')) return RUNNING;
    return below('failed') ? FAILED : QUIET;
  }

  hidden(unit) {
    const { tasks } = this.rollups;
    if (unit.kind === 'task') return tasks[unit.number] - 1;
    return unit.members.reduce((sum, member) => sum + tasks[member], 0);
  }

  canOpen(unit) {
    return unit.kind !== 'task' || this.model.children[unit.number].length > 0;
  }

  // Open what makes the tree read well in so many rows.
  smart(rows) {
    const due = [];
    let [left, order] = [rows - 1, 0];
    this.grouped = this.model.size > rows ? GROUPED : Infinity;
    this.foldAll();
    const consider = (unit, depth) => {
      if (!this.canOpen(unit) || unit.kind === 'more') return;
      const worst = this.hiddenUrgency(unit);
      due.push({ unit, depth, rank: [worst, worst < QUIET ? depth : 0, -this.hidden(unit), order] });
      order += 1;
    };
    if (this.model.size) consider(this.task(0), 0);
    for (let isRoot = true; due.length; isRoot = false) {
      const { unit, depth, rank } = popLeast(due);
      if (left < 1) break;
      let units = this.units(unit);
      if (units.length <= left) left -= units.length;
      else if (left > 1 && (isRoot || rank[0] < QUIET)) {
        units = this.best(unit, units, left - 1);
        this.keep(unit, units);
        left = 0;
      } else continue;
      this.opened.add(unit.key);
      for (const below of units) consider(below, depth + 1);
    }
  }

  best(unit, units, most) {
    if (unit.kind === 'group') {
      return this.withRest(unit, this.matter(unit.members, most).map((it) => this.task(it)));
    }
    const urgency = (it) => (it.kind === 'task' ? this.urgency(it.number) : this.hiddenUrgency(it));
    const size = (it) => this.hidden(it) + (it.kind === 'task' ? 1 : 0);
    const places = units.map((it, at) => [urgency(it), -size(it), at]).sort(compare)
      .slice(0, most).map(([, , at]) => at).sort((one, other) => one - other);
    return this.withRest(unit, places.map((at) => units[at]));
  }

  keep(unit, units) {
    const kept = units.filter((it) => it.kind !== 'more');
    if (unit.kind === 'group') this.members.set(unit.key, kept.length);
    else this.kept.set(unit.key, new Set(kept.map((it) => it.key)));
  }

  foldAll() {
    this.opened.clear();
    this.kept.clear();
    this.members.clear();
    this.extra.clear();
  }

  openAll() {
    this.foldAll();
    this.grouped = Infinity;
    for (let number = 0; number < this.model.size; number += 1) {
      if (this.model.children[number].length) this.opened.add(this.model.ids[number]);
    }
  }

  open(unit) {
    if (unit.kind === 'more') {
      this.kept.delete(unit.of.key);
      if (unit.of.kind === 'group') this.members.set(unit.of.key, unit.of.members.length);
    } else this.opened.add(unit.key);
  }

  fold(unit) {
    this.opened.delete(unit.key);
    this.kept.delete(unit.key);
    this.members.delete(unit.key);
    this.extra.delete(unit.key);
  }

  // Open the path to a task, and nothing else.
  reveal(number) {
    const path = [];
    for (let above = number; above >= 0; above = this.model.parent[above]) path.unshift(above);
    path.slice(1).forEach((below, at) => {
      const parent = this.task(path[at]);
      this.opened.add(parent.key);
      const has = (it) => it.number === below || it.members?.includes(below);
      if (!this.below(parent).some((it) => has(it) && it.kind !== 'more')) this.kept.delete(parent.key);
      const group = this.units(parent).find((it) => it.kind === 'group' && has(it));
      if (!group) return;
      this.opened.add(group.key);
      if (!this.units(group).some((it) => it.number === below)) {
        this.extra.set(group.key, (this.extra.get(group.key) ?? new Set()).add(below));
      }
    });
  }

  below(unit) {
    if (unit.kind === 'more') return [];
    const units = this.units(unit);
    const kept = this.kept.get(unit.key);
    return kept ? this.withRest(unit, units.filter((it) => kept.has(it.key))) : units;
  }

  rows() {
    return this.walk((unit) => this.canOpen(unit), (unit) => this.opened.has(unit.key),
      (unit) => this.below(unit));
  }

  // The rows of a search: what was found and all above it, no groups, open but for what is `shut`.
  found(shown, shut) {
    const below = ({ number }) => this.model.children[number]
      .filter((child) => shown.has(child)).map((child) => this.task(child));
    if (!shown.size) return [];
    return this.walk((unit) => below(unit).length > 0, (unit) => !shut.has(unit.key), below);
  }

  walk(canOpen, isOpen, below) {
    const rows = [];
    const pending = this.model.size ? [{ ...this.task(0), level: 1, place: 1, siblings: 1 }] : [];
    while (pending.length) {
      const row = pending.pop();
      row.canOpen = canOpen(row);
      row.isOpen = row.kind !== 'more' && row.canOpen && isOpen(row);
      rows.push(row);
      if (!row.isOpen) continue;
      const units = below(row);
      for (let at = units.length - 1; at >= 0; at -= 1) {
        pending.push({ ...units[at], level: row.level + 1, place: at + 1, siblings: units.length });
      }
    }
    return rows;
  }
}

function compare(one, other) {
  for (let at = 0; at < one.length; at += 1) if (one[at] !== other[at]) return one[at] - other[at];
  return 0;
}

function popLeast(due) {
  let least = 0;
  due.forEach((it, at) => {
    if (compare(it.rank, due[least].rank) < 0) least = at;
  });
  return due.splice(least, 1)[0];
}

// Return the tasks that fit, with all above them: {shown, hits}; null is no question at all.
export function search(model, rollups, words, groups) {
  const query = words.trim().toLowerCase();
  if (!query && !groups.size) return null;
  const shown = new Set();
  const hits = [];
  for (let number = 0; number < model.size; number += 1) {
    if (groups.size && !groups.has(rollups.own[number])) continue;
    if (query && !fits(model, number, query)) continue;
    hits.push(number);
    for (let above = number; above >= 0 && !shown.has(above); above = model.parent[above]) {
      shown.add(above);
    }
  }
  return { shown, hits };
}

function fits(model, number, query) {
  const name = `${model.agent[number]}: ${model.name(number)}`;
  return [name, model.ids[number], model.error[number], model.goal[number], model.path[number]]
    .some((text) => text.toLowerCase().includes(query));
}
