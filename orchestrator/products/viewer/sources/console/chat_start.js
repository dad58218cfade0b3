// The page of a conversation that is not begun: which agent, and the composer.

import { element, patch } from '../run/dom.js';
import { oneLine } from '../run/format.js';

const CARDS = 3; // agents beside one another; a list has the others
const AGENT = 'orchestrator chat agent';

export class ChatStart {
  constructor(console_, changed) {
    this.console = console_;
    this.changed = changed;
    const { agents, lead } = console_.me;
    const usable = Object.keys(agents).filter((name) => !agents[name]);
    this.names = [lead, ...usable.filter((name) => name !== lead)].filter(Boolean);
    const last = localStorage.getItem(AGENT);
    this.agent = this.names.includes(last) ? last : this.names[0] ?? '';
    this.about = new Map(); // agent to its description
    this.title = element('h1');
    this.cards = element('div', { class: 'agent-cards', role: 'group', 'aria-label': 'Agent' });
    this.element = element('div', { class: 'chat-start' }, this.title, this.cards);
    this.draw();
  }

  describe(models) {
    for (const { id, description } of models) this.about.set(id, description);
    this.draw();
  }

  choose(name) {
    this.agent = name;
    localStorage.setItem(AGENT, name);
    this.draw();
    this.changed();
  }

  draw() {
    this.title.textContent = this.agent ? `What shall ${this.agent} do?` : 'No agent of this server can run.';
    const shown = this.names.slice(0, CARDS);
    const others = this.names.slice(CARDS);
    patch(this.cards, this.names.length < 2 ? [] : [
      ...shown.map((name) => element('button', { type: 'button', class: 'agent-card', 'data-name': name, 'aria-pressed': String(name === this.agent), onclick: (event) => this.choose(event.currentTarget.dataset.name) },
        element('b', {}, oneLine(name, 40)), element('span', { class: 'hint' }, oneLine(this.about.get(name) || (name === this.console.me.lead ? 'leads the others' : ''), 60)))),
      others.length ? element('select', { 'aria-label': 'More agents', 'data-own': others.includes(this.agent) ? this.agent : 'more', onchange: (event) => event.currentTarget.value && this.choose(event.currentTarget.value) },
        element('option', { value: '' }, `${others.length} more …`), ...others.map((name) => element('option', { value: name, selected: name === this.agent }, oneLine(name, 40)))) : null,
    ]);
  }
}
