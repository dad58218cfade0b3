// What a run would take and cost: simulated in virtual time, before a cent is spent.

import { element, fill } from '../run/dom.js';
import { count, counted, duration, money, oneLine, printable } from '../run/format.js';
import { newKey } from './api.js';

// [field of the request, words, unit, attributes of its input].
const ASSUMED = [
  ['fan_out', 'Tasks that an agent delegates', 'such as 4, or 10,3 by level', { type: 'text', value: '3', pattern: '[0-9]{1,3}(,[0-9]{1,3}){0,9}', inputmode: 'numeric' }],
  ['model_seconds', 'Seconds of an answer', 'half take less', { type: 'number', value: '8', min: 0, max: 86400, step: 'any' }],
  ['output_tokens', 'Tokens of an answer', 'half are shorter', { type: 'number', value: '300', min: 0, max: 1000000, step: 1 }],
  ['failure_rate', 'Share of calls that fail', '0 to 1', { type: 'number', value: '0', min: 0, max: 1, step: 'any' }],
];
const SUCCEEDED = 'succeeded';

export class Simulation {
  // describe: returns the run that is simulated: {agent, input, …}.
  constructor(console_, describe) {
    this.console = console_;
    this.describe = describe;
    this.inputs = new Map(ASSUMED.map(([name, , , attributes]) => [name, element('input', { id: `assumed-${name}`, ...attributes, oninput: () => this.changed() })]));
    this.button = element('button', { type: 'button', class: 'chip', disabled: !console_.may('run'), onclick: () => this.toggle() }, 'Simulate first');
    this.result = element('div', { class: 'simulated', role: 'status', hidden: true });
    this.assumed = element('details', { class: 'assumed' }, element('summary', {}, 'What a simulation assumes'),
      element('div', { class: 'grid' }, ...ASSUMED.map(([name, words, unit]) => element('div', { class: 'field' },
        element('label', { for: `assumed-${name}` }, words), this.inputs.get(name), element('span', { class: 'hint' }, unit)))));
  }

  toggle() {
    if (this.abort) this.abort.abort();
    else this.run();
  }

  // Other words were typed: what is shown is not of this run.
  changed() {
    if (!this.result.hidden) this.result.classList.add('stale');
  }

  forget() {
    this.abort?.abort();
    this.result.hidden = true;
  }

  async run({ runCode = false } = {}) {
    const wrong = [...this.inputs.values()].find((it) => !it.checkValidity());
    if (wrong) {
      this.assumed.open = true;
      wrong.reportValidity();
      return;
    }
    const abort = new AbortController();
    this.abort = abort;
    this.button.textContent = '■ Stop simulating';
    this.show(element('p', { class: 'hint' }, 'Simulating some runs …'));
    const body = { ...this.describe(), run_code: runCode };
    for (const [name, input] of this.inputs) body[name] = input.type === 'number' ? Number(input.value) : input.value;
    try {
      this.draw(await this.console.api.post('v1/simulations', body, newKey(), abort.signal));
    } catch (error) {
      this.refused(error);
    } finally {
      this.abort = null;
      this.button.textContent = 'Simulate again';
    }
  }

  refused(error) {
    if (error.code === 'aborted') {
      this.result.hidden = true;
      return;
    }
    if (error.code !== 'runs_code') {
      this.show(element('p', { class: 'problem' }, printable(error.message)));
      return;
    }
    this.show(
      element('p', {}, 'This agent has code of its own, which a simulation does not replace: it would really run, with all its effects, once for each simulated run.'),
      element('button', { type: 'button', class: 'chip danger', onclick: () => this.run({ runCode: true }) }, 'Let its code run, and simulate'));
  }

  show(...content) {
    this.result.hidden = false;
    this.result.classList.remove('stale');
    fill(this.result, ...content);
    this.result.scrollIntoView({ block: 'nearest' });
  }

  draw(found) {
    const unknown = found.unpriced.length;
    const price = (at) => (found.cost ? money(found.cost[at], unknown) : 'unknown');
    const rows = [
      ['Time', duration(found.seconds.p50), duration(found.seconds.p95)],
      ['Price', price('p50'), price('p95')],
      ['Tasks', count(found.tasks.p50), count(found.tasks.p95)],
      ['Model calls', count(found.calls.p50), count(found.calls.p95)],
      ['Tokens', count(found.tokens.p50), count(found.tokens.p95)],
    ];
    const bad = Object.entries(found.endings).filter(([ending]) => ending !== SUCCEEDED);
    this.show(
      element('h2', {}, `${counted(found.seeds, 'simulated run')}`),
      element('table', { class: 'list' },
        element('thead', {}, element('tr', {}, element('td'), element('th', { scope: 'col', class: 'number' }, 'Median'), element('th', { scope: 'col', class: 'number' }, '95 of 100 below'))),
        element('tbody', {}, ...rows.map(([words, ...cells]) => element('tr', {}, element('th', { scope: 'row' }, words), ...cells.map((it) => element('td', { class: 'number' }, it)))))),
      element('p', {}, element('b', {}, 'Limited by '), `the ${printable(found.sentence)}.`),
      bad.length ? element('p', { class: 'failed' }, `Not all succeeded: ${bad.map(([ending, number]) => `${count(number)} ${ending.replace('_', ' ')}`).join(', ')}.`) : null,
      unknown ? element('p', { class: 'hint' }, `Without the price of ${found.unpriced.map((it) => oneLine(it, 40)).join(', ')}, which is not known.`) : null,
      element('p', { class: 'hint' }, 'No model was asked, and no tool was run. What files add to it is not counted.'),
      element('p', { class: 'hint note-stale' }, 'The form has changed since.'));
  }
}
