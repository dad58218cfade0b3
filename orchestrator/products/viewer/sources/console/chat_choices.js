// The choices of a conversation: its model, a style for its answers, and the folder of its tools.

import { element, fill } from '../run/dom.js';
import { dialog } from './actions.js';

const STYLES = [
  ['', 'as the agent is'],
  ['Answer in as few words as possible.', 'brief'],
  ['Explain your answer step by step, with reasons and examples.', 'detailed'],
  ['Answer plainly, for a reader without technical knowledge.', 'plain'],
];

// change(changes): sends the changes, and returns an error, or nothing.
export function choicesDialog(choices, models, change) {
  const isOwn = !STYLES.some(([text]) => text === choices.instructions);
  const own = element('textarea', { id: 'chat-instructions', rows: 4, maxlength: 10_000, placeholder: 'Such as: You are a patient teacher. Answer in French.' });
  own.value = choices.instructions;
  const style = element('select', { id: 'chat-style', onchange: () => {
    if (style.value !== 'own') own.value = style.value;
    own.hidden = style.value !== 'own';
  } }, ...STYLES.map(([text, words]) => element('option', { value: text, selected: text === choices.instructions }, words)),
  element('option', { value: 'own', selected: isOwn }, 'in your own words'));
  own.hidden = !isOwn;
  own.setAttribute('aria-label', 'Instructions');
  const workspace = element('input', { id: 'chat-workspace', type: 'text', maxlength: 256, placeholder: 'the workspace of the server' });
  workspace.value = choices.workspace;
  const model = element('select', { id: 'chat-model' }, element('option', { value: '' }, 'the agent’s own'),
    ...models.map((name) => element('option', { value: name, selected: name === choices.language_model }, name)));
  const problem = element('p', { class: 'problem', role: 'alert' });
  const field = (id, words, ...content) => element('div', { class: 'field' }, element('label', { for: id }, words), ...content);
  const form = element('form', { onsubmit: async (event) => {
    event.preventDefault();
    const error = await change({ instructions: own.value, workspace: workspace.value.trim(), language_model: model.value });
    if (error) fill(problem, error);
    else made.close();
  } }, field('chat-model', 'Model, from the next message on', model), field('chat-style', 'Style', style, own), field('chat-workspace', 'Folder of the tools', workspace), problem,
  element('div', { class: 'buttons' }, element('button', { type: 'button', onclick: () => made.close() }, 'Close'), element('button', { class: 'primary' }, 'Keep')));
  const made = dialog('Model, style and folder', form);
}
