// Two runs side by side: what they were asked, took, cost and answered, and by which agents.

import { element, fill } from '../run/dom.js';
import { count, counted, duration, money, oneLine, printable, tokens } from '../run/format.js';
import { describe } from '../run/status.js';
import { address } from './router.js';

const MOST_TASKS = 60; // rows of a run
const BAD = new Set(['failed', 'timed_out', 'over_budget', 'lost', 'refused']);

export class ComparePage {
  constructor(console_) {
    this.console = console_;
    this.element = element('main', { class: 'compare' });
  }

  show(route) {
    const ids = [route.params.one, route.params.other];
    this.wanted = ids.join();
    fill(this.element, element('p', { class: 'empty' }, 'Reading both runs …'));
    this.stop?.();
    this.stop = this.console.live.watch('runs', ({ begins, runs = [], deleted = [] }) => {
      if (begins || [...runs.map((it) => it.id), ...deleted].some((id) => ids.includes(id))) this.readBoth(ids);
    });
  }

  // Runs that go on are compared as they are now.
  async readBoth(ids) {
    try {
      const runs = await Promise.all(ids.map((id) => this.read(id)));
      if (this.wanted === ids.join()) this.draw(runs);
    } catch (error) {
      if (this.wanted === ids.join()) fill(this.element, element('p', { class: 'empty' }, error.message));
    }
  }

  hide() {
    this.wanted = null;
    this.stop?.();
    this.stop = null;
  }

  async read(id) {
    const path = `v1/runs/${encodeURIComponent(id)}`;
    const [run, tree] = await Promise.all([this.console.api.get(path), this.console.api.get(`${path}/tree?format=json`)]);
    return { ...run, nodes: tree.nodes, roles: roles(tree.nodes) };
  }

  draw(runs) {
    const seconds = (run) => (run.started ? (run.ended ?? this.console.now()) - run.started : 0);
    const used = (run) => run.usage.input_tokens + run.usage.output_tokens;
    const rows = [
      ['Status', (run) => run.status.replace('_', ' ')],
      ['Agent', (run) => oneLine(run.agent, 60)],
      ['Begun', (run) => new Date(run.created * 1000).toLocaleString()],
      ['Time', (run) => duration(seconds(run)), seconds],
      ['Tasks', (run) => count(total(run.tasks)), (run) => total(run.tasks)],
      ['Tokens', (run) => tokens(used(run), run.usage.estimated), used],
      ['Cost', (run) => money(run.usage.micro_usd, run.usage.unpriced + run.usage.estimated), (run) => run.usage.micro_usd],
    ];
    const names = [...new Set(runs.flatMap((run) => [...run.roles.keys()]))].sort();
    const head = element('tr', {}, element('td'), ...runs.map((run) => element('th', { scope: 'col' },
      element('a', { href: address(['runs', run.id]) }, oneLine(run.about, 80) || run.id))), element('th', { scope: 'col' }, 'Difference'));
    fill(this.element, element('h1', {}, 'Two runs'),
      element('div', { class: 'scroll' }, element('table', { class: 'list' }, element('thead', {}, head),
        element('tbody', {}, ...rows.map(([words, show, measure]) => element('tr', {}, element('th', { scope: 'row' }, words),
          ...runs.map((run) => element('td', {}, show(run))), element('td', {}, measure ? change(measure(runs[0]), measure(runs[1])) : '')))))),
      element('h2', {}, 'By agent'),
      element('div', { class: 'scroll' }, element('table', { class: 'list' }, element('thead', {}, head.cloneNode(true)),
        element('tbody', {}, ...names.map((name) => element('tr', {}, element('th', { scope: 'row' }, oneLine(name, 60)),
          ...runs.map((run) => element('td', {}, ...role(run.roles.get(name)))),
          element('td', {}, roleChange(...runs.map((run) => run.roles.get(name))))))))),
      element('h2', {}, 'Tasks', ...(runs.some(isFork) ? [element('span', { class: 'hint' }, ' kept: copied from an earlier run, free here · new: ran in this run')] : [])),
      element('div', { class: 'sides' }, ...runs.map((run) => tasks(run))),
      element('h2', {}, 'Answers'),
      element('div', { class: 'sides' }, ...runs.map((run) => element('article', { 'aria-label': `Answer of ${run.id}` },
        element('h3', {}, oneLine(run.about, 80) || run.id),
        element('pre', { class: 'answer', tabindex: 0 }, printable(run.output || run.error?.message || 'No answer.'))))));
  }
}

function isFork(run) {
  return run.nodes.some((it) => it.kept);
}

// The tasks of a run, parents first. In a fork, each is kept or new.
function tasks(run) {
  const marks = isFork(run);
  const kept = run.nodes.filter((it) => it.kept).length;
  const row = (node) => element('tr', { class: node.kept ? 'kept' : marks ? 'new' : null },
    element('td', { class: 'name' }, `${'  '.repeat(node.path.split('/').length - 2)}${describe(node.status).glyph} ${oneLine(node.path.slice(node.path.lastIndexOf('/') + 1), 60)}`),
    element('td', {}, marks ? (node.kept ? 'kept' : 'new') : ''),
    element('td', { class: 'number' }, node.kept || node.started === null || node.ended === null ? '' : duration(node.ended - node.started)),
    element('td', { class: 'number' }, node.kept ? '' : money(node.micro_usd ?? 0, (node.usage?.unpriced ?? 0) + (node.usage?.estimated ?? 0))));
  const left = run.nodes.length - MOST_TASKS;
  return element('article', { 'aria-label': `Tasks of ${run.id}` },
    element('h3', {}, marks ? `${counted(run.nodes.length - kept, 'task')} new, ${count(kept)} kept` : counted(run.nodes.length, 'task')),
    element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Tasks of ${run.id} as a table` }, element('table', { class: 'tasks' }, element('tbody', {}, ...run.nodes.slice(0, MOST_TASKS).map(row),
      left > 0 ? element('tr', {}, element('td', { colspan: 4, class: 'hint' }, `… ${count(left)} more`)) : null))));
}

function total(tasks) {
  return Object.values(tasks).reduce((sum, it) => sum + it, 0);
}

// What the tasks of each agent took together.
function roles(nodes) {
  const found = new Map();
  for (const node of nodes) {
    const sum = found.get(node.agent) ?? { tasks: 0, bad: 0, cost: 0, tokens: 0, unknown: 0 };
    sum.tasks += 1;
    sum.bad += BAD.has(node.status);
    sum.cost += node.micro_usd ?? 0;
    sum.tokens += (node.usage?.input_tokens ?? 0) + (node.usage?.output_tokens ?? 0);
    sum.unknown += (node.usage?.unpriced ?? 0) + (node.usage?.estimated ?? 0);
    found.set(node.agent, sum);
  }
  return found;
}

function role(sum) {
  if (!sum) return ['–'];
  return [`${counted(sum.tasks, 'task')}, ${tokens(sum.tokens)} tokens, ${money(sum.cost, sum.unknown)}`,
    sum.bad ? element('span', { class: 'failed' }, ` ✗${count(sum.bad)}`) : null];
}

// How what an agent took differs: in cost, or in tokens where all are free.
function roleChange(first, second) {
  if (!first || !second) return first ? 'only in the first' : 'only in the second';
  const measure = first.cost || second.cost ? 'cost' : 'tokens';
  return change(first[measure], second[measure]);
}

// How the second differs from the first, in percent of it.
function change(first, second) {
  if (first === second) return 'same';
  if (!first) return 'new';
  const percent = Math.round(((second - first) / first) * 100);
  return percent ? `${percent > 0 ? '+' : '−'}${count(Math.abs(percent))}\u00a0%` : 'same';
}
