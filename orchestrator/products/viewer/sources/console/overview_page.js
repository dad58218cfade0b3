// Many runs, summed up: what they cost, how many failed, how long they took.
//
// The figures are those of the stored summaries; they are read again every ten seconds at most.

import { element, fill } from '../run/dom.js';
import { count, duration, money, oneLine, tokens } from '../run/format.js';
import { address } from './router.js';

const PERIODS = [[1, 'Today'], [7, '7 days'], [30, '30 days'], [90, '90 days']];
const AGAIN = 10_000; // milliseconds
const NO_P95 = 'few';

export class OverviewPage {
  constructor(console_) {
    this.console = console_;
    this.asked = 0;
    this.periods = element('div', { class: 'chips', role: 'group', 'aria-label': 'Time' });
    this.note = element('p', { class: 'hint' });
    this.figures = element('div', { class: 'figures-of-runs' });
    this.element = element('main', { class: 'overview' },
      element('div', { class: 'title' }, element('h1', {}, 'Overview'), this.periods, element('span', { class: 'space' }), this.note),
      this.figures);
  }

  show(route) {
    const days = Number(route.query.get('days'));
    this.days = PERIODS.some(([it]) => it === days) ? days : 30;
    this.agent = route.query.get('agent') ?? '';
    this.drawPeriods();
    if (!this.figures.childElementCount) fill(this.figures, element('p', { class: 'empty' }, 'Reading …'));
    this.timer ??= setInterval(() => !document.hidden && this.read(), AGAIN);
    this.read();
  }

  hide() {
    clearInterval(this.timer);
    this.timer = null;
    this.asked += 1;
  }

  drawPeriods() {
    const { agent } = this;
    const without = agent ? element('a', { class: 'chip', href: address(['overview'], { days: this.days }), title: 'Show all agents' }, `agent: ${oneLine(agent, 40)} ✕`) : null;
    fill(this.periods, ...PERIODS.map(([days, words]) => element('a', {
      class: 'chip', href: address(['overview'], { days, agent }), 'aria-current': days === this.days ? 'true' : null,
    }, words)), without);
  }

  async read() {
    this.asked += 1;
    const { asked } = this;
    const query = new URLSearchParams({ days: this.days, minutes_east: -new Date().getTimezoneOffset() });
    if (this.agent) query.set('agent', this.agent);
    try {
      const found = await this.console.api.get(`v1/overview?${query}`);
      if (asked === this.asked) this.draw(found);
    } catch (error) {
      if (asked === this.asked) this.console.shell.say(error.message, { failed: true });
    }
  }

  draw({ at, is_complete: isComplete, total, days, agents }) {
    fill(this.note, `As of ${new Date(at * 1000).toLocaleTimeString()}${isComplete ? '' : '; older runs are not counted'}`);
    if (!total.runs) {
      fill(this.figures, element('p', { class: 'empty' }, 'No run began in this time. ', element('a', { href: '#/new' }, 'Begin one.')));
      return;
    }
    fill(this.figures, this.tiles(total),
      chart('Cost a day', days, [['cost', (it) => it.micro_usd]], (it) => money(it.micro_usd, it.unpriced)),
      chart('Runs a day', days, [['failed', failed], ['done', (it) => it.runs - failed(it)]], (it) => `${count(it.runs)}${failed(it) ? `, ${count(failed(it))} failed` : ''}`),
      this.agentTable(agents));
  }

  tiles(total) {
    const open = (total.statuses.in_progress ?? 0) + (total.statuses.queued ?? 0);
    const waiting = total.statuses.waiting ?? 0;
    const tile = (name, value, more) => element('div', {}, element('dt', {}, name), element('dd', {}, value, element('small', {}, more)));
    return element('dl', { class: 'tiles' },
      tile('Cost', money(total.micro_usd, total.unpriced), total.unpriced ? `${count(total.unpriced)} calls have no price` : `${tokens(total.tokens)} tokens`),
      tile('Runs', count(total.runs), `${count(open)} running · ${count(waiting)} waiting for you`),
      tile('Failed runs', share(total), `✗ ${count(failed(total))}`),
      tile('A run takes', total.p50 === null ? '–' : duration(total.p50), `p50 · p95 ${total.p95 === null ? NO_P95 : duration(total.p95)}`),
      tile('Saved by prompt caches', money(total.saved_micro_usd, 0), 'the discount of the providers'));
  }

  agentTable(agents) {
    const longest = Math.max(...agents.map((it) => it.p95 ?? it.p50 ?? 0)) || 1;
    const heads = ['Agent', 'Time of a run', 'p50', 'p95', 'Runs', 'Failed', 'Cost'];
    return element('section', {}, element('h2', {}, 'Agents ', element('small', {}, 'slowest first')), element('div', { class: 'scroll' }, element('table', { class: 'list' },
      element('thead', {}, element('tr', {}, ...heads.map((words, at) => element('th', { scope: 'col', class: at > 1 ? 'number' : '' }, words)))),
      element('tbody', {}, ...agents.map((it) => {
        const bar = element('span', { class: 'range' });
        bar.style.width = `${(100 * (it.p95 ?? it.p50 ?? 0)) / longest}%`;
        const cells = [it.p50 === null ? '–' : duration(it.p50), it.p95 === null ? NO_P95 : duration(it.p95), count(it.runs), share(it), money(it.micro_usd, it.unpriced)];
        return element('tr', {}, element('th', { scope: 'row' }, element('a', { href: address(['overview'], { days: this.days, agent: it.agent }) }, oneLine(it.agent, 60))),
          element('td', { class: 'times' }, bar),
          ...cells.map((words, at) => element('td', { class: `number ${at === 3 && failed(it) ? 'failed' : ''}` }, words)));
      })))));
  }
}

function failed(figures) {
  return figures.statuses.failed ?? 0;
}

function share(figures) {
  const part = figures.runs ? (100 * failed(figures)) / figures.runs : 0;
  return `${part && part < 10 ? part.toFixed(1) : Math.round(part)} %`;
}

// Bars of one day each, and the same as a table for people who do not see them.
function chart(title, days, parts, words) {
  const most = Math.max(...days.map((it) => parts.reduce((sum, [, of]) => sum + of(it), 0))) || 1;
  const columns = days.map((it) => element('div', { class: 'column', title: `${it.day}: ${words(it)}` }, ...parts.map(([kind, of]) => {
    const bar = element('span', { class: kind });
    bar.style.height = `${(100 * of(it)) / most}%`;
    return bar;
  })));
  const top = days.reduce((best, it) => (parts.reduce((sum, [, of]) => sum + of(it), 0) > parts.reduce((sum, [, of]) => sum + of(best), 0) ? it : best));
  return element('section', {}, element('h2', {}, title, ' ', element('small', {}, `most: ${words(top)} on ${top.day}`)),
    element('div', { class: 'chart', 'aria-hidden': 'true' }, ...columns),
    element('div', { class: 'chart-ends', 'aria-hidden': 'true' }, element('span', {}, days[0].day), element('span', {}, days.at(-1).day)),
    element('table', { class: 'unseen' }, element('caption', {}, title), element('tbody', {}, ...days.map((it) => element('tr', {}, element('th', { scope: 'row' }, it.day), element('td', {}, words(it)))))));
}
