// The messages of a task as a chat: Markdown, JSON and diffs; a tool call is a card with its result inside.

import { element, fill } from './dom.js';
import { count, exactMoney, oneLine, tokens } from './format.js';
import { structured, written } from './markdown.js';
import { attachments, finish, folded, reasoning, toolCard, wakeUp } from './message_parts.js';

// The id of what no person wrote, after its fact: a task or a command in the background has ended. The
// ids of messages have ten places.
export const NOTICE = /^m_\d{1,9}$/;

export class MessageList {
  // names: how the roles of messages are called.
  // footer: makes the elements below a message.
  constructor(names = {}, footer = () => []) {
    this.names = { user: 'input', assistant: 'model', tool: 'tool', end: 'end', ...names };
    this.footer = footer;
    this.agent = ''; // whose words the answers are; without one, the model's
    this.element = element('div', { class: 'messages' });
    this.open(null);
  }

  // Begin with the messages of a task; null is one of a recording, whose files are not there.
  open(task) {
    this.task = task;
    this.cards = new Map(); // call id to its card
    fill(this.element);
  }

  add(message) {
    const card = message.role === 'tool' ? this.cards.get(message.call) : null;
    if (card) finish(card, message, this.task);
    else this.element.append(this.isWakeUp(message) ? wakeUp(message, this.task) : this.made(message));
  }

  isWakeUp({ id, role }) {
    return NOTICE.test(id) && role === 'user' && this.element.firstChild;
  }

  made(message) {
    const { role, text, left } = message;
    const calls = (message.calls ?? []).map((call) => {
      const card = toolCard(call);
      this.cards.set(call.id, card);
      return card;
    });
    const speaker = role === 'assistant' ? this.agent : '';
    const who = role === 'user' && message.aside ? 'message to it' : speaker || message.model || message.who || this.names[role];
    return element('article', { 'data-message': message.id, 'data-number': message.number, class: `message ${role}${message.failed ? ' failed' : ''}${message.aside ? ' aside' : ''}` },
      element('h3', {}, element('span', { title: message.model ? `Model: ${oneLine(message.model, 80)}` : null }, oneLine(who, 60)), element('time'), message.incomplete ? element('span', { class: 'badge' }, 'broken off') : null, cost(message.usage)),
      message.reasoning ? reasoning(message.reasoning).element : null,
      text ? folded(role === 'tool' ? [structured(text)] : written(text), text) : null,
      left ? element('p', { class: 'hint' }, `${count(left)} more characters are not in this file.`) : null,
      ...attachments(message, this.task),
      ...calls,
      ...this.footer(message));
  }
}

// What a message has cost: tokens that were read and written, and the price as far as it is known.
function cost(usage) {
  if (!usage || !(usage.input_tokens || usage.output_tokens)) return null;
  const price = usage.micro_usd || usage.unpriced ? ` · ${exactMoney(usage.micro_usd, usage.unpriced + usage.estimated)}` : '';
  const cached = usage.cached_tokens ? `, ${tokens(usage.cached_tokens)} of it from a cache` : '';
  const thought = usage.reasoning_tokens ? `, ${tokens(usage.reasoning_tokens)} of it reasoning` : '';
  return element('span', { class: 'cost', title: `Tokens: read${cached} · wrote${thought}` },
    `read ${tokens(usage.input_tokens, usage.estimated)} · wrote ${tokens(usage.output_tokens, usage.estimated)}${price}`);
}
