// The list of runs, newest first, as they change: searched, filtered, compared and deleted.

import { element, fill, patch } from '../run/dom.js';
import { count, duration, money, oneLine, tokens } from '../run/format.js';
import { deleteDialog } from './actions.js';
import { badTasks } from './failures.js';
import { greyRows, menuButton } from './list_parts.js';
import { pruneDialog } from './prune_dialog.js';
import { address } from './router.js';
import { RunFilter } from './run_filter.js';

const STATUSES = {
  queued: ['·', 'queued', 'queued'],
  in_progress: ['◐', 'running', 'running'],
  waiting: ['!', 'waiting for you', 'waiting'],
  completed: ['✓', 'done', 'done'],
  failed: ['✗', 'failed', 'failed'],
  cancelled: ['⊘', 'cancelled', 'cancelled'],
};
const PAGE = 50;
const MOST_AGAIN = 500; // rows that are read again when the list has changed in an unknown way
const TYPED_AFTER = 250; // milliseconds: who types asks once

export class RunsPage {
  constructor(console_) {
    this.console = console_;
    this.runs = new Map();
    this.chosen = new Set(); // ids of runs to compare
    this.next = null;
    this.newer = new Map(); // id to run, or to null if it was deleted: told since the page was asked for
    // What other processes write into journals of the folder is told by the list alone.
    this.onSeen = () => !document.hidden && this.read();
    this.asked = 0; // how often the list was asked for: what an earlier request brings is not shown
    this.isReading = false;
    this.filter = new RunFilter(new URLSearchParams());
    this.body = element('tbody');
    this.grey = greyRows(10);
    this.more = element('button', { type: 'button', class: 'chip', hidden: true, onclick: () => this.older() });
    this.note = element('p', { class: 'empty', hidden: true });
    this.compare = element('button', { type: 'button', class: 'chip', disabled: true, title: 'Choose two runs', onclick: () => this.console.router.go(['compare', ...this.chosen]) }, 'Compare');
    this.fields = this.makeFields();
    const heads = ['', 'Status', 'Agent', 'Input', 'Tasks', 'Tokens', 'Cost', 'Time', 'Begun', ''];
    this.element = element('main', { class: 'runs' },
      element('div', { class: 'title' }, element('h1', {}, 'Runs'), element('span', { class: 'space' }), this.compare,
        console_.may('admin') ? element('button', { type: 'button', class: 'chip', onclick: () => pruneDialog(console_) }, 'Prune …') : null,
        console_.may('run') ? element('a', { class: 'primary', href: '#/new' }, 'New run') : null),
      element('form', { class: 'filters', role: 'search', onsubmit: (event) => event.preventDefault() }, ...Object.values(this.fields)),
      element('div', { class: 'scroll' }, element('table', { class: 'list' },
        element('thead', {}, element('tr', {}, ...heads.map((words, at) => element(words ? 'th' : 'td', { scope: words ? 'col' : null, class: at > 3 && at < 9 ? 'number' : '' }, words)))),
        this.body, this.grey.element)),
      this.note, this.more);
  }

  makeFields() {
    const changed = () => this.filtered();
    const choice = (label, options) => element('select', { 'aria-label': label, onchange: changed },
      ...options.map(([value, words]) => element('option', { value }, words)));
    return {
      q: element('input', { type: 'search', placeholder: 'Search input, metadata or id', 'aria-label': 'Search runs', oninput: () => {
        clearTimeout(this.typing);
        this.typing = setTimeout(changed, TYPED_AFTER);
      } }),
      status: choice('Status', [['', 'any status'], ...Object.entries(STATUSES).map(([value, [glyph, words]]) => [value, `${glyph} ${words}`])]),
      agent: choice('Agent', [['', 'any agent']]),
      since: choice('Begun', [['', 'any time'], ['day', 'last day'], ['week', 'last 7 days'], ['month', 'last 30 days']]),
      cost: element('input', { type: 'number', min: 0, step: 'any', placeholder: '$ at least', 'aria-label': 'Cost in dollars, at least', onchange: changed }),
    };
  }

  show(route) {
    this.filter = new RunFilter(route.query);
    for (const [name, field] of Object.entries(this.fields)) field.value = this.filter[name];
    this.stop ??= this.console.live.watch('runs', (message) => this.receive(message));
    this.timer ??= setInterval(() => this.tick(), 1000);
    document.addEventListener('visibilitychange', this.onSeen);
    this.readAgents();
    this.read();
  }

  hide() {
    this.stop?.();
    this.stop = null;
    document.removeEventListener('visibilitychange', this.onSeen);
    clearInterval(this.timer);
    clearTimeout(this.typing);
    this.timer = null;
    this.asked += 1; // no search goes on for a page that is not seen
    this.isReading = false;
  }

  filtered() {
    const given = Object.entries(this.fields).map(([name, field]) => [name, field.value.trim()]);
    this.filter = new RunFilter(new URLSearchParams(given));
    this.console.router.note('runs', this.filter.query);
    this.read();
  }

  async readAgents() {
    try {
      this.addAgents((await this.console.api.get('v1/models')).data.map((it) => it.id));
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }

  // Agents to choose from: those that are served, and those that have runs.
  addAgents(names) {
    const { agent: field } = this.fields;
    const known = new Set([...field.options].map((it) => it.value));
    field.append(...[...new Set(names)].filter((it) => !known.has(it)).map((name) => element('option', { value: name }, oneLine(name, 40))));
    field.value = this.filter.agent;
  }

  // Read the list anew, as far as it was shown.
  async read() {
    this.asked += 1;
    this.newer = new Map(); // what is told meanwhile is newer than the page
    await this.readPages('', Math.min(Math.max(PAGE, this.runs.size), MOST_AGAIN), this.asked);
  }

  // More, or no more: a search of old runs goes on until a page is full, and can be stopped.
  async older() {
    this.asked += 1;
    if (this.isReading) {
      this.isReading = false;
      this.draw();
      return;
    }
    await this.readPages(this.next, this.runs.size + PAGE, this.asked);
  }

  async readPages(after, wanted, asked) {
    const { filter } = this;
    const found = new Map();
    let next = after;
    this.isReading = true;
    this.grey.show(!this.runs.size);
    try {
      do {
        const query = filter.asked(this.console.now());
        query.set('limit', Math.min(100, wanted - (after ? this.runs.size : found.size)));
        if (next) query.set('after', next);
        const page = await this.console.api.get(`v1/runs?${query}`);
        if (asked !== this.asked) return; // another one was asked for meanwhile
        for (const run of page.data) (after ? this.runs : found).set(run.id, run);
        next = page.has_more ? page.last_id : null;
        if (!after) this.runs = found;
        for (const [id, run] of this.newer) this.keep(id, run);
        this.next = next;
        this.draw();
      } while (next && this.runs.size < wanted);
    } catch (error) {
      if (asked === this.asked) this.console.shell.say(error.message, { failed: true });
    }
    if (asked !== this.asked) return;
    this.isReading = false;
    this.draw();
  }

  receive({ begins, runs = [], deleted = [], error }) {
    if (error) this.console.shell.say(error, { failed: true });
    if (begins) this.read(); // what happened until now is told by the list alone
    for (const [id, run] of [...runs.map((run) => [run.id, run]), ...deleted.map((id) => [id, null])]) {
      this.newer.set(id, run);
      this.keep(id, run);
    }
    if (runs.length || deleted.length) this.draw();
  }

  keep(id, run) {
    if (run && this.filter.lists(run, this.console.now())) this.runs.set(id, run);
    else this.runs.delete(id);
  }

  // Times go on by themselves.
  tick() {
    for (const row of this.body.rows) {
      const run = this.runs.get(row.dataset.run);
      if (run?.started && !run.ended) row.querySelector('.time').textContent = this.time(run);
    }
  }

  time(run) {
    return run.started ? duration((run.ended ?? this.console.now()) - run.started) : '';
  }

  draw() {
    const runs = [...this.runs.values()].sort((one, other) => other.created - one.created);
    for (const id of this.chosen) if (!this.runs.has(id)) this.chosen.delete(id);
    this.addAgents([...runs.map((it) => it.agent), this.filter.agent]);
    this.drawRows(runs);
    this.grey.show(this.isReading && !runs.length);
    this.more.hidden = !this.next && !this.isReading;
    this.more.textContent = this.isReading ? '■ Searching older runs …' : 'Show older runs';
    this.note.hidden = runs.length > 0 || this.isReading;
    fill(this.note, this.filter.isEmpty ? 'No run yet.' : this.next ? 'No run fits so far.' : 'No run fits.');
    this.drawCompare();
  }

  // A row stays as it is while its run does, with its focus; thousands of them cost what has changed.
  drawRows(runs) {
    const rows = new Map([...this.body.rows].map((row) => [row.dataset.run, row]));
    let at = this.body.firstElementChild;
    for (const run of runs) {
      let row = rows.get(run.id);
      rows.delete(run.id);
      if (row && row.run !== run) {
        patch(row, [...this.row(run).cells]);
        row.run = run;
      }
      row ??= Object.assign(this.row(run), { run });
      row.querySelector('input').checked = this.chosen.has(run.id);
      if (row === at) at = at.nextElementSibling;
      else this.body.insertBefore(row, at);
    }
    for (const row of rows.values()) row.remove();
  }

  drawCompare() {
    this.compare.disabled = this.chosen.size !== 2;
    this.compare.textContent = this.chosen.size ? `Compare ${this.chosen.size} of 2` : 'Compare';
  }

  choose(id, isChosen) {
    if (isChosen) this.chosen.add(id);
    else this.chosen.delete(id);
    if (this.chosen.size > 2) this.chosen.delete(this.chosen.values().next().value);
    this.draw();
  }

  row(run) {
    const [glyph, word, group] = STATUSES[run.status];
    const { usage } = run;
    const name = oneLine(run.about, 200) || run.id;
    const all = Object.values(run.tasks).reduce((sum, it) => sum + it, 0);
    const failed = badTasks(run.tasks);
    const units = [all === 1 ? 'task' : 'tasks', 'tokens']; // a phone has no heads
    const cells = [
      count(all), tokens(usage.input_tokens + usage.output_tokens, usage.estimated),
      money(usage.micro_usd, usage.unpriced + usage.estimated),
      this.time(run), new Date(run.created * 1000).toLocaleString(),
    ];
    const box = element('input', { type: 'checkbox', 'aria-label': `Compare ${name}`, onchange: (event) => this.choose(run.id, event.target.checked) });
    return element('tr', { 'data-run': run.id },
      element('td', {}, box),
      element('td', { class: `status ${group}` }, `${glyph} ${word}`),
      element('td', {}, oneLine(run.agent, 40)),
      element('td', { class: 'about' }, element('a', { href: address(['runs', run.id]) }, name),
        run.process ? element('span', { class: 'hint process' }, `in another process (${run.process})`) : null),
      ...cells.map((words, at) => element('td', { class: at === 3 ? 'number time' : 'number', 'data-unit': units[at] }, words,
        at === 0 && failed ? element('span', { class: 'failed' }, ` ✗${count(failed)}`) : null)),
      element('td', {}, this.console.may('steer')
        ? menuButton(`More actions for ${name}`, [['Delete …', () => deleteDialog(this.console, this.runs.get(run.id) ?? run, name)]]) : null));
  }
}
