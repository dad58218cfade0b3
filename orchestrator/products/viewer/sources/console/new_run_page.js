// A new run: which agent, what for, with what; what that would take; and the same without a browser.

import { element, fill } from '../run/dom.js';
import { oneLine, printable } from '../run/format.js';
import { newKey } from './api.js';
import { Attachments, mediaType, parts } from './attachments.js';
import { runCommands } from './run_commands.js';
import { Simulation } from './simulation.js';

const LONGEST_GOAL = 2000; // characters that an address takes

export class NewRunPage {
  constructor(console_) {
    this.console = console_;
    this.key = newKey(); // of one run: pressed twice, it begins once
    this.agents = new Map(); // name to what the server says of it
    const changed = () => {
      this.key = newKey();
      this.changed();
    };
    const limit = (name) => element('input', { id: `new-${name}`, type: 'number', min: 0, step: 'any', placeholder: 'no limit', oninput: changed });
    this.agent = element('select', { id: 'new-agent', required: true, onchange: changed });
    this.about = element('p', { class: 'hint about-agent' });
    this.goal = element('textarea', { id: 'new-goal', rows: 5, required: true, placeholder: 'What is to be done?', oninput: changed, onpaste: (event) => this.takesFiles && this.attached.takePasted(event) });
    this.attached = new Attachments(console_, () => this.nameFiles());
    this.extra = element('textarea', { id: 'new-extra', rows: 2, placeholder: 'For this run alone, in addition to those of the agent', oninput: changed });
    this.model = element('select', { id: 'new-model', onchange: changed });
    this.usd = limit('usd');
    this.seconds = limit('seconds');
    this.problem = element('p', { class: 'problem', role: 'alert' });
    const may = console_.may('run');
    this.begin = element('button', { class: 'primary', disabled: !may, title: may ? null : 'Your key may not begin runs' }, 'Run');
    this.same = element('div', { class: 'same' });
    this.simulation = new Simulation(console_, () => this.body());
    this.element = this.makeElement();
    this.attached.takeDropped(this.element, () => this.takesFiles);
    this.element.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.form.requestSubmit();
    });
    this.files = []; // [{name, type}] of what is attached
  }

  makeElement() {
    const field = (name, words, ...content) => element('div', { class: 'field' }, element('label', { for: name }, words), ...content);
    this.filesField = element('div', { class: 'files' }, this.attached.element, this.attached.picker,
      element('button', { type: 'button', class: 'chip', onclick: () => this.attached.choose() }, '+ Files'));
    this.extraField = field('new-extra', 'Instructions', this.extra);
    this.modelField = field('new-model', 'Model', this.model);
    this.form = element('form', { onsubmit: (event) => this.send(event) },
      field('new-agent', 'Agent', this.agent, this.about), field('new-goal', 'Goal', this.goal, this.filesField), this.extraField,
      element('div', { class: 'grid' }, this.modelField, field('new-usd', 'At most, in dollars', this.usd), field('new-seconds', 'At most, in seconds', this.seconds)),
      this.simulation.assumed, this.problem,
      element('div', { class: 'buttons' }, this.begin, this.simulation.button,
        element('span', { class: 'hint mouse-only' }, element('kbd', {}, 'Ctrl'), ' ', element('kbd', {}, 'Enter'), ' runs')));
    return element('main', { class: 'new-run' }, element('h1', {}, 'New run'), this.form, this.simulation.result,
      element('h2', {}, 'The same without a browser'), this.same);
  }

  async show(route) {
    const wanted = route.query.get('agent') ?? this.agent.value;
    if (route.query.get('goal')) this.goal.value = route.query.get('goal');
    try {
      const { data, language_models: models = [] } = await this.console.api.get('v1/models');
      this.agents = new Map(data.map((it) => [it.id, it]));
      this.models = models;
      fill(this.agent, ...data.map(({ id }) => element('option', { value: id }, printable(id))));
      if (this.agents.has(wanted)) this.agent.value = wanted;
    } catch (error) {
      fill(this.problem, error.message);
    }
    this.changed();
    this.goal.focus();
  }

  hide() {
    fill(this.problem);
    this.simulation.forget();
  }

  // A pipeline is a program: it calls no model, and takes neither files nor instructions.
  get isPipeline() {
    return this.agents.get(this.agent.value)?.language_model === null;
  }

  get takesFiles() {
    return !this.isPipeline && this.console.may('run');
  }

  async nameFiles() {
    const { files } = this.attached;
    const named = await Promise.all(files.map(async (file) => ({ name: file.name, type: await mediaType(file) })));
    if (files !== this.attached.files) return; // others were chosen meanwhile
    this.files = named;
    this.key = newKey();
    this.changed();
  }

  changed() {
    const { isPipeline } = this;
    for (const it of [this.filesField, this.extraField]) it.hidden = isPipeline;
    this.drawModels();
    this.drawAgent();
    this.simulation.changed();
    this.drawSame();
  }

  drawModels() {
    const own = this.agents.get(this.agent.value)?.language_model ?? '';
    const others = (this.models ?? []).filter((it) => it !== own);
    const chosen = this.model.value;
    this.modelField.hidden = this.isPipeline || !others.length;
    fill(this.model, element('option', { value: '' }, `its own: ${oneLine(own, 60)}`), ...others.map((it) => element('option', { value: it }, oneLine(it, 60))));
    this.model.value = others.includes(chosen) ? chosen : '';
  }

  drawAgent() {
    const problem = this.console.me.agents[this.agent.value];
    this.about.className = `about-agent ${problem ? 'problem' : 'hint'}`;
    fill(this.about, oneLine(problem || (this.agents.get(this.agent.value)?.description ?? ''), 240));
  }

  async send(event) {
    event.preventDefault();
    if (this.begin.disabled) return; // it is being sent
    this.begin.disabled = true;
    fill(this.problem);
    try {
      const body = this.body();
      if (this.files.length && !this.isPipeline) body.parts = await parts(this.attached.files);
      const { id } = await this.console.api.post('v1/runs', body, this.key);
      // Back leads to the same form again.
      if (body.input.length < LONGEST_GOAL) this.console.router.note('new', { agent: body.agent, goal: body.input });
      this.goal.value = '';
      this.extra.value = ''; // they were for one run
      this.attached.change([]);
      this.key = newKey();
      this.console.router.go(['runs', id]);
    } catch (error) {
      // What was refused is another run when it is sent again; what got lost may have begun.
      if (error.status) this.key = newKey();
      fill(this.problem, error.status === undefined ? 'A file could not be read. Attach it again.' : error.message);
    } finally {
      this.begin.disabled = false;
    }
  }

  // The run as the server takes it, without its files.
  body() {
    const body = { agent: this.agent.value || 'AGENT', input: this.goal.value };
    if (!this.isPipeline && this.extra.value.trim()) body.instructions = this.extra.value;
    if (!this.isPipeline && this.model.value) body.language_model = this.model.value;
    const limits = [['usd', this.usd], ['seconds', this.seconds]].filter(([, field]) => field.value !== '');
    if (limits.length) body.budget = Object.fromEntries(limits.map(([name, field]) => [name, Number(field.value)]));
    return body;
  }

  drawSame() {
    const run = this.body();
    const { file, variables } = this.console.me;
    const blocks = runCommands({ ...run, input: run.input || '…' }, this.isPipeline ? [] : this.files, { file, variable: variables[run.agent] }, location.origin);
    fill(this.same, ...blocks.flatMap(([words, text]) => [
      element('div', { class: 'same-head' }, element('h3', {}, words),
        element('button', { type: 'button', class: 'link', 'aria-label': `Copy: ${words}`, onclick: () => this.copy(text) }, 'Copy')),
      element('pre', { tabindex: 0, 'aria-label': words }, printable(text)),
    ]));
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.console.shell.say('Copied.');
    } catch {
      this.console.shell.say('The browser does not let this page copy. Select the text instead.', { failed: true });
    }
  }
}
