// A new run: which agent, what for; and the same as a command, as a request, and in Python.

import { element, fill } from '../run/dom.js';
import { printable } from '../run/format.js';
import { newKey } from './api.js';

export class NewRunPage {
  constructor(console_) {
    this.console = console_;
    this.key = newKey(); // of one run: pressed twice, it begins once
    this.agent = element('select', { id: 'new-agent', required: true, onchange: () => this.draw() });
    this.goal = element('textarea', { id: 'new-goal', rows: 6, required: true, placeholder: 'What is to be done?', oninput: () => this.draw() });
    this.extra = element('textarea', { id: 'new-extra', rows: 2, placeholder: 'For this run alone, in addition to those of the agent', oninput: () => this.draw() });
    this.usd = element('input', { id: 'new-usd', type: 'number', min: 0, step: 'any', placeholder: 'no limit', oninput: () => this.draw() });
    this.seconds = element('input', { id: 'new-seconds', type: 'number', min: 0, step: 'any', placeholder: 'no limit', oninput: () => this.draw() });
    this.problem = element('p', { class: 'problem', role: 'alert' });
    this.begin = element('button', { class: 'primary' }, 'Run');
    this.same = element('div', { class: 'same' });
    const field = (name, words, input) => element('div', { class: 'field' }, element('label', { for: name }, words), input);
    this.element = element('main', { class: 'new-run' }, element('h1', {}, 'New run'),
      element('form', { onsubmit: (event) => this.send(event) },
        field('new-agent', 'Agent', this.agent), field('new-goal', 'Goal', this.goal),
        field('new-extra', 'Instructions', this.extra),
        element('div', { class: 'pair' }, field('new-usd', 'At most, in dollars', this.usd), field('new-seconds', 'At most, in seconds', this.seconds)),
        this.problem,
        element('div', { class: 'buttons' }, this.begin, element('span', { class: 'hint' }, element('kbd', {}, 'Ctrl'), ' ', element('kbd', {}, 'Enter')))),
      element('h2', {}, 'The same without a browser'), this.same);
    this.goal.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.element.querySelector('form').requestSubmit();
    });
  }

  async show(route) {
    const wanted = route.query.get('agent') ?? this.agent.value;
    if (route.query.get('goal')) this.goal.value = route.query.get('goal');
    try {
      const names = (await this.console.api.get('v1/models')).data.map((it) => it.id);
      fill(this.agent, ...names.map((name) => element('option', { value: name }, printable(name))));
      if (names.includes(wanted)) this.agent.value = wanted;
    } catch (error) {
      fill(this.problem, error.message);
    }
    this.draw();
    this.goal.focus();
  }

  hide() {
    fill(this.problem);
  }

  async send(event) {
    event.preventDefault();
    if (this.begin.disabled) return; // it is being sent
    this.begin.disabled = true;
    fill(this.problem);
    const body = this.body(this.agent.value, this.goal.value);
    try {
      const { id } = await this.console.api.post('v1/runs', body, this.key);
      this.goal.value = '';
      this.key = newKey();
      this.console.router.go(['runs', id]);
    } catch (error) {
      // A key stands for one body: what is mended is another run.
      if (error.status) this.key = newKey();
      fill(this.problem, error.message);
    } finally {
      this.begin.disabled = false;
    }
  }

  body(agent, input) {
    const body = { agent, input };
    if (this.extra.value.trim()) body.instructions = this.extra.value;
    const limits = [['usd', this.usd], ['seconds', this.seconds]].filter(([, field]) => field.value !== '');
    if (limits.length) body.budget = Object.fromEntries(limits.map(([name, field]) => [name, Number(field.value)]));
    return body;
  }

  draw() {
    const agent = this.agent.value || 'AGENT';
    const goal = this.goal.value || '…';
    const body = this.body(agent, goal);
    const limits = Object.entries(body.budget ?? {}).map(([name, value]) => `${name}=${value}`).join(', ');
    const run = `print(run_sync(${agent.replace(/\W/g, '_')}, ${JSON.stringify(goal)}).output)`;
    const blocks = [
      ['Command line', `orchestrator run FILE:${quoted(agent)} ${quoted(goal)}`],
      ['HTTP', `curl ${location.origin}/v1/runs -H "Authorization: Bearer $TOKEN" \\\n  -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`],
      ['Python', limits ? `from orchestrator import budget, run_sync\n\nwith budget(${limits}):\n    ${run}` : `from orchestrator import run_sync\n\n${run}`],
    ];
    fill(this.same, ...blocks.flatMap(([words, text]) => [element('h3', {}, words), element('pre', { tabindex: 0 }, printable(text))]));
  }
}

// One word of a shell, whatever is in it.
function quoted(text) {
  return /^[\w.:/-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}
