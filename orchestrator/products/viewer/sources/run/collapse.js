// Which rows of a tree are shown: the collapse policy of `delegation/tree/collapse.py`. Tests compare
// the rows of both.
//
// The policy runs once. After that only the user expands and collapses rows: collapsing one row must
// not expand others elsewhere.

import { COST } from './model.js';

export const GROUPED = 8; // at most so many siblings of one agent are shown one by one
export const SHOWN = 4; // so many of an expanded group are shown: the most important ones

const [WAITING, RUNNING, FAILED, QUIET] = [0, 1, 2, 3];

export class CollapsedTree {
  constructor(model, rollups) {
    this.model = model;
    this.rollups = rollups;
    this.grouped = GROUPED;
    this.expanded = new Set(); // the keys of expanded rows
    this.shownBelow = new Map(); // row key to the keys of its children, where only some are shown
    this.members = new Map(); // group key to how many of it are shown, where that is not SHOWN
    this.extra = new Map(); // group key to members that are shown because they were revealed
    this.order = null; // compares two rows below one task; null leaves them as they were asked for
  }

  task(number) {
    return { kind: 'task', key: this.model.ids[number], number };
  }

  // The rows below an expanded task or group.
  nodes(node) {
    if (node.kind === 'group') {
      const most = this.members.get(node.key) ?? SHOWN;
      const chosen = new Set([...this.mostImportant(node.members, most), ...this.extra.get(node.key) ?? []]);
      return this.withRest(node, node.members.filter((it) => chosen.has(it)).map((it) => this.task(it)));
    }
    const { model } = this;
    const byAgent = new Map();
    for (const child of model.children[node.number]) {
      const agent = model.agent[child];
      if (!byAgent.has(agent)) byAgent.set(agent, []);
      byAgent.get(agent).push(child);
    }
    const nodes = [];
    for (const child of model.children[node.number]) {
      const agent = model.agent[child];
      const members = byAgent.get(agent);
      if (members.length <= this.grouped) nodes.push(this.task(child));
      else if (members[0] === child) {
        nodes.push({ kind: 'group', key: `${node.key}/${agent}`, parent: node.number, agent, members });
      }
    }
    return nodes;
  }

  // The most important members of a group, in tree order: urgent, then costly, then the first.
  mostImportant(members, most) {
    if (members.length <= most) return members;
    const { model, rollups } = this;
    if (this.order) {
      const first = members.map((it) => this.task(it)).sort(this.order).slice(0, most);
      return first.map((it) => it.number);
    }
    const chosen = new Set();
    const take = (tasks) => {
      for (const it of tasks) if (chosen.size < most) chosen.add(it);
    };
    for (const urgency of [WAITING, RUNNING]) take(members.filter((it) => this.urgency(it) === urgency));
    // Those that have failed themselves, then those of which the largest share has.
    const isBelow = (it) => (rollups.own[it] === 'failed' ? 0 : 1);
    const share = (it) => rollups.groups.failed[it] / rollups.tasks[it];
    const cost = (it) => model.ofTotal(it, COST);
    take(members.filter((it) => this.urgency(it) === FAILED).sort((one, other) =>
      isBelow(one) - isBelow(other) || share(other) - share(one) || cost(other) - cost(one) || one - other));
    take(members.filter((it) => rollups.tasks[it] > 1).sort((one, other) =>
      cost(other) - cost(one) || rollups.tasks[other] - rollups.tasks[one]
      || model.tokens(other) - model.tokens(one) || one - other));
    take(members);
    return [...chosen].sort((one, other) => one - other);
  }

  // The shown rows, and a row that counts the rest.
  withRest(node, shown) {
    const included = new Set(shown.flatMap((it) => it.members ?? [it.number]));
    const all = node.members ?? this.model.children[node.number];
    const members = all.filter((it) => !included.has(it));
    if (!members.length) return shown;
    const parent = node.parent ?? node.number;
    const agent = node.agent ?? '';
    return [...shown, { kind: 'more', key: `${node.key}/…`, of: node, parent, agent, members }];
  }

  urgency(number) {
    const { groups } = this.rollups;
    if (groups.waiting[number]) return WAITING;
    if (groups.running[number] || groups.interrupted[number]) return RUNNING;
    return groups.failed[number] ? FAILED : QUIET;
  }

  // The urgency of the tasks that a collapsed row hides.
  hiddenUrgency(node) {
    if (node.kind !== 'task') {
      return node.members.reduce((worst, it) => Math.min(worst, this.urgency(it)), QUIET);
    }
    const below = (group) => this.rollups.below(node.number, group);
    if (below('waiting')) return WAITING;
    if (below('running') || below('interrupted')) return RUNNING;
    return below('failed') ? FAILED : QUIET;
  }

  hidden(node) {
    const { tasks } = this.rollups;
    if (node.kind === 'task') return tasks[node.number] - 1;
    return node.members.reduce((sum, member) => sum + tasks[member], 0);
  }

  canExpand(node) {
    return node.kind !== 'task' || this.model.children[node.number].length > 0;
  }

  // Expand the most important rows until the tree has so many.
  fit(rows) {
    const due = [];
    let [left, order] = [rows - 1, 0];
    this.grouped = this.model.size > rows ? GROUPED : Infinity;
    this.collapseAll();
    const consider = (node, depth) => {
      if (!this.canExpand(node) || node.kind === 'more') return;
      const worst = this.hiddenUrgency(node);
      due.push({ node, depth, rank: [worst, worst < QUIET ? depth : 0, -this.hidden(node), order] });
      order += 1;
    };
    if (this.model.size) consider(this.task(0), 0);
    for (let isRoot = true; due.length; isRoot = false) {
      const { node, depth, rank } = popLeast(due);
      if (left < 1) break;
      let nodes = this.nodes(node);
      if (nodes.length <= left) left -= nodes.length;
      else if (left > 1 && (isRoot || rank[0] < QUIET)) {
        nodes = this.fitBelow(node, nodes, left - 1);
        this.showOnly(node, nodes);
        left = 0;
      } else continue;
      this.expanded.add(node.key);
      for (const below of nodes) consider(below, depth + 1);
    }
  }

  fitBelow(node, nodes, most) {
    if (node.kind === 'group') {
      return this.withRest(node, this.mostImportant(node.members, most).map((it) => this.task(it)));
    }
    const urgency = (it) => (it.kind === 'task' ? this.urgency(it.number) : this.hiddenUrgency(it));
    const size = (it) => this.hidden(it) + (it.kind === 'task' ? 1 : 0);
    const places = nodes.map((it, at) => [urgency(it), -size(it), at]).sort(compare)
      .slice(0, most).map(([, , at]) => at).sort((one, other) => one - other);
    return this.withRest(node, places.map((at) => nodes[at]));
  }

  showOnly(node, nodes) {
    const shown = nodes.filter((it) => it.kind !== 'more');
    if (node.kind === 'group') this.members.set(node.key, shown.length);
    else this.shownBelow.set(node.key, new Set(shown.map((it) => it.key)));
  }

  collapseAll() {
    this.expanded.clear();
    this.shownBelow.clear();
    this.members.clear();
    this.extra.clear();
  }

  expandAll() {
    this.collapseAll();
    this.grouped = Infinity;
    for (let number = 0; number < this.model.size; number += 1) {
      if (this.model.children[number].length) this.expanded.add(this.model.ids[number]);
    }
  }

  expand(node) {
    if (node.kind === 'more') {
      this.shownBelow.delete(node.of.key);
      if (node.of.kind === 'group') this.members.set(node.of.key, node.of.members.length);
    } else this.expanded.add(node.key);
  }

  collapse(node) {
    this.expanded.delete(node.key);
    this.shownBelow.delete(node.key);
    this.members.delete(node.key);
    this.extra.delete(node.key);
  }

  // Expand the path to a task, and nothing else.
  reveal(number) {
    const path = [];
    for (let above = number; above >= 0; above = this.model.parent[above]) path.unshift(above);
    path.slice(1).forEach((below, at) => {
      const parent = this.task(path[at]);
      this.expanded.add(parent.key);
      const has = (it) => it.number === below || it.members?.includes(below);
      if (!this.below(parent).some((it) => has(it) && it.kind !== 'more')) this.shownBelow.delete(parent.key);
      const group = this.nodes(parent).find((it) => it.kind === 'group' && has(it));
      if (!group) return;
      this.expanded.add(group.key);
      if (!this.nodes(group).some((it) => it.number === below)) {
        this.extra.set(group.key, (this.extra.get(group.key) ?? new Set()).add(below));
      }
    });
  }

  below(node) {
    if (node.kind === 'more') return [];
    const nodes = this.nodes(node);
    const shown = this.shownBelow.get(node.key);
    return shown ? this.withRest(node, nodes.filter((it) => shown.has(it.key))) : nodes;
  }

  rows() {
    return this.rowsOf((node) => this.canExpand(node), (node) => this.expanded.has(node.key),
      (node) => this.below(node));
  }

  // The rows of a search: the hits and their ancestors, without groups, expanded but for `collapsed`.
  searchRows(shown, collapsed) {
    const below = ({ number }) => this.model.children[number]
      .filter((child) => shown.has(child)).map((child) => this.task(child));
    if (!shown.size) return [];
    return this.rowsOf((node) => below(node).length > 0, (node) => !collapsed.has(node.key), below);
  }

  rowsOf(canExpand, isExpanded, below) {
    const rows = [];
    const pending = this.model.size ? [{ ...this.task(0), level: 1, place: 1, siblings: 1 }] : [];
    while (pending.length) {
      const row = pending.pop();
      row.canExpand = canExpand(row);
      row.isExpanded = row.kind !== 'more' && row.canExpand && isExpanded(row);
      rows.push(row);
      if (!row.isExpanded) continue;
      const nodes = this.order ? below(row).toSorted(this.order) : below(row);
      for (let at = nodes.length - 1; at >= 0; at -= 1) {
        pending.push({ ...nodes[at], level: row.level + 1, place: at + 1, siblings: nodes.length });
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

// The tasks that match, with their ancestors: {shown, hits}; null if there is nothing to search for.
export function searchTasks(model, rollups, words, groups) {
  const query = words.trim().toLowerCase();
  if (!query && !groups.size) return null;
  const shown = new Set();
  const hits = [];
  for (let number = 0; number < model.size; number += 1) {
    if (groups.size && !groups.has(rollups.own[number])) continue;
    if (query && !matches(model, number, query)) continue;
    hits.push(number);
    for (let above = number; above >= 0 && !shown.has(above); above = model.parent[above]) {
      shown.add(above);
    }
  }
  return { shown, hits };
}

function matches(model, number, query) {
  const name = `${model.agent[number]}: ${model.name(number)}`;
  return [name, model.ids[number], model.error[number], model.goal[number], model.path[number]]
    .some((text) => text.toLowerCase().includes(query));
}
