// What the messages of a conversation are made of: files, reasoning, long texts, cards of tool calls.

import { element, fill } from './dom.js';
import { count, duration, oneLine, printable } from './format.js';
import { code, structured } from './markdown.js';
import { fileAddress } from './page_secret.js';
import { leadsToTheWeb } from './web_address.js';

const FOLDED_LINES = 40;
const FOLDED_CHARACTERS = 6000;
// Those that the server lets a browser show: `server/api/part_bytes.py`.
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];
// How tools name what they replace, and by what.
const CHANGES = [['old', 'new'], ['old_text', 'new_text'], ['old_string', 'new_string']];

// The images and files of a message: images are shown, everything else can be saved. Without a task,
// in a recording, they are named only.
export function attachments({ id, parts = [] }, task) {
  if (!parts.length) return [];
  return [element('ul', { class: 'attachments', 'aria-label': 'Files' }, ...parts.map((part) =>
    element('li', { class: 'attachment' }, attachment(part, task && `v1/tasks/${task}/messages/${id}/parts/${part.number}`))))];
}

function attachment({ name, media_type: type, bytes, url }, path) {
  const words = `${oneLine(name || type, 80)}${bytes ? `, ${count(bytes)} bytes` : ''}`;
  if (!path) return element('span', {}, words);
  // Loaded by no one but who asks for it: the page shows nothing of other servers.
  if (url && !leadsToTheWeb(url)) return element('span', {}, `${words} (${oneLine(url, 200)})`);
  if (url) return element('a', { href: url, target: '_blank', rel: 'noopener noreferrer', title: url }, `${words} (elsewhere)`);
  const saved = () => element('a', { href: path, download: name || 'file' }, words);
  if (!IMAGES.includes(type)) return saved();
  const fail = () => shown.replaceWith(saved());
  const image = element('img', { alt: oneLine(name || 'image', 80), onerror: fail });
  const shown = element('button', { type: 'button', class: 'link', title: words,
    onclick: async () => window.open(await fileAddress(path, type), '_blank', 'noopener') }, image);
  // Loaded when it is near: a conversation may have many of them.
  const observer = new IntersectionObserver((seen) => {
    if (!seen.some((it) => it.isIntersecting)) return;
    observer.disconnect();
    fileAddress(path, type).then((address) => { image.src = address; }, fail);
  }, { rootMargin: '1000px', scrollMargin: '1000px' });
  observer.observe(image);
  return shown;
}

// What a model has thought, folded: its last words are in sight while they come.
export function reasoning(text) {
  const [words, body] = [element('span', { class: 'about' }), element('div', { class: 'body' })];
  const made = element('details', { class: 'tool reasoning' }, element('summary', {}, element('span', { class: 'name' }, 'reasoning'), words), body);
  const show = (thoughts, isComing = false) => {
    made.hidden = !thoughts;
    words.textContent = isComing ? oneLine(thoughts.slice(-160), 160) : `${count(thoughts.length)} characters`;
    body.textContent = printable(thoughts);
  };
  show(text);
  return { element: made, show };
}

// A notice as `delegation/notices.py` writes it: the path of the task, how it has ended, and its output.
const NOTICE = /^A task that you delegated in the background has ended: (\S+) \((t_\w+)/;
const OUTCOME = /^Outcome: (\w+) after ([\d.]+) s; .* tokens, (.*)\.$/m;

// A result from the background that has woken the agent, as a card; all of it when asked for.
export function wakeUp({ id, number, text }, run) {
  const [first] = text.split('\n');
  const [, path, task] = first.match(NOTICE) ?? [];
  const [, ending = '', seconds = '', cost = ''] = text.match(OUTCOME) ?? [];
  const isDone = ending === 'succeeded';
  const at = text.indexOf('\nOutput:\n');
  const agent = path ? path.split('/').at(-1).replace(/\[\d+\]$/, '') : '';
  const about = !path ? first : isDone && at > 0 ? text.slice(at + 9) : text.match(/^Error: (.*)$/m)?.[1] ?? ending;
  return element('details', { class: `tool notice ${ending && !isDone ? 'failed' : ''}`, 'data-message': id, 'data-number': number },
    element('summary', {}, ending ? element('span', { class: `glyph ${isDone ? 'done' : 'failed'}` }, isDone ? '✓' : '✗') : null,
      agent ? element('b', { class: 'name' }, `${oneLine(agent, 40)}:`) : null, element('span', { class: 'about' }, oneLine(about, 160)),
      element('span', { class: 'state' }, path ? `${duration(Number(seconds))} · ${oneLine(cost, 20)}` : 'woke it')),
    element('div', { class: 'body' }, task && run ? element('p', { class: 'label' }, element('a', { href: `#/runs/${run}/tasks/${task}` }, 'Open the task')) : null, folded([structured(text)], text)));
}

// A long text is folded, and says how long it is.
export function folded(content, text) {
  const body = element('div', { class: 'text', dir: 'auto' }, ...content);
  const lines = text.split('\n').length;
  if (lines <= FOLDED_LINES && text.length <= FOLDED_CHARACTERS) return body;
  body.classList.add('is-folded');
  const button = element('button', { type: 'button', class: 'link', onclick: () => {
    body.classList.remove('is-folded');
    button.remove();
  } }, `show all ${lines > FOLDED_LINES ? `${count(lines)} lines` : `${count(text.length)} characters`}`);
  return element('div', {}, body, button);
}

// What a call is about, in few words: its first short argument.
function aboutCall({ name, arguments: given }) {
  if (name === 'delegate_task') {
    const many = Array.isArray(given.tasks) ? given.tasks.length : 1;
    return many === 1 ? oneLine(String(given.goal ?? given.tasks?.[0]?.goal ?? ''), 80) : `${count(many)} tasks`;
  }
  const first = Object.values(given).find((it) => typeof it === 'string' || typeof it === 'number');
  return first === undefined ? '' : oneLine(String(first), 80);
}

export function toolCard(call) {
  const state = element('span', { class: 'state running' }, '◐ running');
  const body = element('div', { class: 'body' });
  const card = element('details', { class: 'tool', 'data-call': call.id },
    element('summary', {}, element('code', { class: 'name' }, oneLine(call.name, 60)), element('span', { class: 'about' }, aboutCall(call)), state), body);
  // Made when it is opened: a conversation may have thousands of them.
  card.addEventListener('toggle', () => {
    if (!card.open || body.firstChild) return;
    fillCard(card, body, call);
  });
  card.fillAgain = () => body.firstChild && fillCard(card, body, call);
  card.state = state;
  return card;
}

function fillCard(card, body, call) {
  const { result } = card;
  fill(body, element('p', { class: 'label' }, 'arguments'), ...given(call.arguments),
    result ? element('p', { class: 'label' }, result.failed ? 'error' : 'result') : null,
    result?.text ? folded([structured(result.text)], result.text) : null,
    ...(result ? attachments(result, card.task) : []));
}

// The arguments of a call: a change as a diff, and the others as JSON.
function given(all) {
  const change = CHANGES.find((names) => names.every((name) => typeof all[name] === 'string'));
  if (!change) return [structured(JSON.stringify(all))];
  const lines = change.flatMap((name, at) => printable(all[name]).split('\n').map((line) => `${'-+'[at]}${line}`));
  const others = Object.fromEntries(Object.entries(all).filter(([name]) => !change.includes(name)));
  return [structured(JSON.stringify(others)), code(lines, 'diff')];
}

export function finish(card, message, task) {
  card.result = message;
  card.task = task;
  card.classList.toggle('failed', Boolean(message.failed));
  card.state.className = `state ${message.failed ? 'failed' : 'done'}`;
  card.state.textContent = message.failed ? '✗ failed' : '✓';
  card.fillAgain();
}

