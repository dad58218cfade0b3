// The head of a conversation: its title, its agent and model, how full its context is, and its cost.

import { element, fill, patch } from '../run/dom.js';
import { money, oneLine, tokens } from '../run/format.js';
import { familyOf } from './branches.js';
import { address } from './router.js';

const NO_CHOICES = { language_model: '', instructions: '', workspace: '' };

export class ChatHead {
  constructor(page) {
    this.page = page;
    this.console = page.console;
    this.element = element('header', { class: 'chat-head' });
    this.menu = this.makeMenu();
    this.open();
  }

  open() {
    this.renaming = null;
    this.context = null;
    this.choices = NO_CHOICES;
    this.menu.open = false;
    fill(this.element);
    if (this.page.session) this.draw();
  }

  async readChoices() {
    const { session } = this.page;
    try {
      const { language_model: model, instructions, workspace } = await this.console.api.get(`v1/sessions/${session}`);
      if (session === this.page.session) this.choices = { language_model: model, instructions, workspace };
    } catch {
      return; // the conversation itself says why
    }
    this.draw();
  }

  // Change the choices of a conversation; return an error, or nothing.
  async change(session, changes) {
    try {
      await this.console.api.post(`v1/sessions/${session}`, changes);
    } catch (error) {
      return error.message;
    }
    if (session === this.page.session) this.choices = { ...this.choices, ...changes };
    this.draw();
    return '';
  }

  makeMenu() {
    const { page } = this;
    const item = (scope, words, act, kind = '') => (this.console.may(scope) ? element('button', { type: 'button', class: kind, onclick: () => {
      this.menu.open = false;
      act();
    } }, words) : null);
    return element('details', { class: 'chat-menu', 'data-own': 'menu', onfocusout: (event) => {
      if (!this.menu.contains(event.relatedTarget) && event.relatedTarget) this.menu.open = false;
    } }, element('summary', { class: 'chip', 'aria-label': 'More', title: 'More' }, '⋯'),
    element('div', { class: 'menu' },
      item('read', 'Find in this conversation', () => page.openFind()), item('run', 'Rename', () => this.rename()),
      item('run', 'Model, style and folder', () => page.chooseModel()), item('read', 'Save as a report', () => page.share()),
      item('steer', 'Delete', () => page.remove(), 'danger')));
  }

  // The cost of the conversation and its branches.
  cost() {
    const { list, session } = this.page;
    const family = familyOf(list.sessions, session);
    let [sum, unknown] = [0, 0];
    for (const it of list.sessions.values()) {
      if (!it.usage || familyOf(list.sessions, it.id) !== family) continue;
      sum += it.usage.micro_usd;
      unknown += it.usage.unpriced + it.usage.estimated;
    }
    return sum ? money(sum, unknown) : '';
  }

  draw() {
    const { list, session: id } = this.page;
    if (!id) return;
    const session = list.selected;
    patch(this.element, [
      element('a', { class: 'chip back', href: '#/chat', 'aria-label': 'All conversations' }, '‹'),
      this.renaming ?? element('h1', {}, list.isRead || session ? list.title(session) : 'Reading …'),
      session ? element('span', { class: 'badge' }, oneLine(session.agent, 40)) : null,
      this.choices.language_model ? element('span', { class: 'badge model', title: 'The model of this conversation' }, oneLine(this.choices.language_model, 40)) : null,
      element('span', { class: 'space' }), this.meter(),
      element('span', { class: 'hint cost', title: 'With its tasks and branches' }, this.cost()),
      element('a', { class: 'chip tree', href: address(['runs', id]) }, 'Open run'),
      this.menu,
    ]);
  }

  // How much of its window the last call of the model has read.
  meter() {
    const { prompt_tokens: used, window: all, threshold } = this.context ?? {};
    if (!used) return null;
    if (!all) return element('span', { class: 'hint context', title: 'Tokens that the last call of the model has read' }, `${tokens(used)} read`);
    const share = Math.min(100, Math.round((100 * used) / all));
    const words = `${share} % of ${tokens(all)}`;
    return element('span', { class: 'context', title: `The last call of the model has read ${used} of ${all} tokens. From ${threshold} on, the conversation is shortened for it.` },
      element('meter', { min: 0, max: all, high: threshold, optimum: 0, value: Math.min(used, all), 'aria-label': 'Context' }, words), element('span', { class: 'hint' }, words));
  }

  // Enter renames; Escape, or going elsewhere, leaves it as it is.
  rename() {
    const { list, session } = this.page;
    const end = () => {
      this.renaming = null;
      this.draw();
    };
    const title = element('input', { type: 'text', maxlength: 200, 'aria-label': 'Title', placeholder: 'As it begins',
      onkeydown: (event) => event.key === 'Escape' && end(), onblur: () => this.renaming && end() });
    title.value = list.selected?.metadata?.title || list.title(list.selected);
    this.renaming = element('form', { class: 'rename', 'data-own': 'rename', onsubmit: (event) => {
      event.preventDefault();
      this.renaming = null;
      list.rename(session, title.value.trim());
    } }, title);
    this.draw();
    title.select();
  }
}
