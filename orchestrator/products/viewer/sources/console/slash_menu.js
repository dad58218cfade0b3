// The commands of the composer: `/` at its start lists them, and Enter carries one out.

import { element, patch } from '../run/dom.js';

export class SlashMenu {
  // commands: () => [{name, about, takes, act(argument)}, ...].
  constructor(field, commands) {
    this.field = field;
    this.commands = commands;
    this.at = 0;
    this.found = [];
    this.element = element('div', { class: 'slash-menu', role: 'listbox', id: 'slash-menu', 'aria-label': 'Commands', hidden: true });
  }

  get isOpen() {
    return !this.element.hidden;
  }

  // The command that the field has, with its argument; null for an ordinary message.
  command() {
    const [, name, argument = ''] = this.field.value.match(/^\/(\w+)(?:\s+([\s\S]*))?$/) ?? [];
    const known = this.commands().find((it) => it.name === name);
    return known ? { ...known, argument: argument.trim() } : null;
  }

  changed() {
    const [, typed] = this.field.value.match(/^\/(\w*)$/) ?? [];
    this.found = typed === undefined ? [] : this.commands().filter((it) => it.name.startsWith(typed.toLowerCase()));
    this.at = 0;
    this.draw();
  }

  draw() {
    this.element.hidden = !this.found.length;
    if (this.isOpen) this.field.setAttribute('aria-activedescendant', `slash-${this.found[this.at].name}`);
    else this.field.removeAttribute('aria-activedescendant');
    patch(this.element, this.found.map(({ name, about, takes }, at) => element('div', {
      role: 'option', id: `slash-${name}`, 'data-name': name, 'aria-selected': String(at === this.at), onmousedown: (event) => {
        event.preventDefault();
        this.pick(event.currentTarget.dataset.name);
      } }, element('b', {}, `/${name}`), takes ? element('i', {}, ` ${takes}`) : null, element('span', { class: 'hint' }, about))));
  }

  // Return whether the key was for the menu.
  key(event) {
    if (!this.isOpen) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.at = (this.at + step + this.found.length) % this.found.length;
    else if (event.key === 'Enter' || event.key === 'Tab') this.pick(this.found[this.at].name);
    else if (event.key === 'Escape') this.found = [];
    else return false;
    event.preventDefault();
    event.stopPropagation();
    this.draw();
    return true;
  }

  // A command with an argument is completed; another one is carried out.
  pick(name) {
    const command = this.found.find((it) => it.name === name);
    this.found = [];
    this.field.value = command.takes ? `/${name} ` : '';
    this.field.dispatchEvent(new Event('input'));
    this.draw();
    if (!command.takes) command.act('');
  }
}
