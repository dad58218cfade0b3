// The list of runs, newest first, as they change.

import { element, fill } from '../run/dom.js';
import { count, duration, money, oneLine, tokens } from '../run/format.js';
import { address } from './router.js';

const STATUSES = {
  queued: ['·', 'queued', 'queued'],
  in_progress: ['◐', 'running', 'running'],
  waiting: ['!', 'waiting', 'waiting'],
  completed: ['✓', 'done', 'done'],
  failed: ['✗', 'failed', 'failed'],
  cancelled: ['⊘', 'cancelled', 'cancelled'],
};
const PAGE = 50;

export class RunsPage {
  constructor(console_) {
    this.console = console_;
    this.runs = new Map();
    this.next = null;
    this.body = element('tbody');
    this.more = element('button', { type: 'button', class: 'chip', hidden: true, onclick: () => this.read(this.next) }, 'Show older runs');
    this.note = element('p', { class: 'empty', hidden: true });
    this.element = element('main', { class: 'runs' },
      element('h1', {}, 'Runs'),
      element('table', { class: 'list' },
        element('thead', {}, element('tr', {}, ...['Status', 'Agent', 'Input', 'Tasks', 'Tokens', 'Cost', 'Time', 'Begun']
          .map((words, at) => element('th', { scope: 'col', class: at > 2 ? 'number' : '' }, words)))),
        this.body),
      this.note, this.more);
  }

  show() {
    this.stop ??= this.console.live.watch('runs', (message) => this.receive(message));
    this.timer ??= setInterval(() => this.tick(), 1000);
    this.read();
  }

  hide() {
    this.stop?.();
    this.stop = null;
    clearInterval(this.timer);
    this.timer = null;
  }

  async read(after = '') {
    try {
      const page = await this.console.api.get(`v1/runs?limit=${PAGE}${after ? `&after=${after}` : ''}`);
      if (!after) this.runs.clear();
      for (const run of page.data) this.runs.set(run.id, run);
      this.next = page.has_more ? page.last_id : null;
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
    this.draw();
  }

  receive({ runs = [], deleted = [], error }) {
    if (error) this.console.shell.say(error, { failed: true });
    for (const run of runs) this.runs.set(run.id, run);
    for (const id of deleted) this.runs.delete(id);
    if (runs.length || deleted.length) this.draw();
  }

  tick() {
    if ([...this.runs.values()].some((run) => run.started && !run.ended)) this.draw();
  }

  draw() {
    const runs = [...this.runs.values()].sort((one, other) => other.created - one.created);
    fill(this.body, ...runs.map((run) => this.row(run)));
    this.more.hidden = !this.next;
    this.note.hidden = runs.length > 0;
    fill(this.note, 'No run yet.');
  }

  row(run) {
    const [glyph, word, group] = STATUSES[run.status];
    const { usage } = run;
    const all = Object.values(run.tasks).reduce((sum, it) => sum + it, 0);
    const failed = ['failed', 'timed_out', 'over_budget', 'lost'].reduce((sum, it) => sum + (run.tasks[it] ?? 0), 0);
    const until = run.ended ?? this.console.now();
    const cells = [
      count(all), tokens(usage.input_tokens + usage.output_tokens, usage.estimated),
      money(usage.cost, usage.unpriced + usage.estimated),
      run.started ? duration(until - run.started) : '', new Date(run.created * 1000).toLocaleString(),
    ];
    return element('tr', { 'data-run': run.id },
      element('td', { class: `status ${group}` }, `${glyph} ${word}`),
      element('td', {}, oneLine(run.agent, 40)),
      element('td', { class: 'about' }, element('a', { href: address(['runs', run.id]) }, oneLine(run.about, 200) || run.id)),
      ...cells.map((words, at) => element('td', { class: 'number' }, words,
        at === 0 && failed ? element('span', { class: 'failed' }, ` ✗${count(failed)}`) : null)));
  }
}
