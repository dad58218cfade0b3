// Text of models as Markdown, made of elements: nothing is parsed as markup, and a link leads to the
// web only. What it does not know stays as it was written. No text makes it take long: what is long,
// deep or wide beyond what people read is shown as it is.

import { copyButton } from './copy.js';
import { element } from './dom.js';
import { printable } from './format.js';
import { highlighted } from './highlight.js';
import { leadsToTheWeb } from './web_address.js';

const FIRST_HEADING = 4;
const LONGEST = 100_000; // characters: more is shown as it is
const MOST_LINES = 10_000; // as above
const DEEPEST = 20; // quotes and lists in one another
const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(\S.*)$/;
const HEADING_END = /\s#{1,6}$/;
const TASK = /^\[([ xX])\]\s+/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const CELLS = /^\|?(\s*:?-+:?\s*\|)+\s*:?-*:?$/;
// Each part has an end: what begins and is not closed would be searched for in all of the rest.
const INLINE = /(?<!`)(`{1,4})(?!`)([\s\S]{0,999}?[^`])\1(?!`)|\*\*(?=\S)([\s\S]{0,999}?\S)\*\*|__(?=\S)([\s\S]{0,999}?\S)__|\*(?=\S)([^*\n]{0,999}?\S)\*|(?<!\w)_(?=\S)([^_\n]{0,999}?\S)_(?!\w)|~~(?=\S)([\s\S]{0,999}?\S)~~|!?\[([^\]\n]{0,999})\]\(\s{0,9}<?([^)\s>]{0,1999})>?(?:\s{1,9}"[^"]{0,999}")?\s{0,9}\)|<(https?:\/\/[^>\s]{1,1999})>|(https?:\/\/[^\s<>()]{0,1999}[^\s<>().,;:!?'"])/;

// Return the elements of a text.
export function markdown(text) {
  const clean = printable(text);
  const lines = clean.split('\n');
  if (clean.length > LONGEST || lines.length > MOST_LINES) return [element('pre', {}, clean)];
  // The headings of the page come before those of a text in it.
  const levels = lines.map((line) => line.match(HEADING)?.[1].length).filter(Boolean);
  return blocks(lines, FIRST_HEADING - Math.min(6, ...levels));
}

function blocks(lines, raised = 0, depth = 0) {
  if (depth > DEEPEST) return [element('p', {}, lines.join('\n'))];
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) at += 1;
    else if ((found = line.match(FENCE))) {
      const end = lines.findIndex((it, place) => place > at && it.trim().startsWith(found[1]) && !it.trim().slice(found[1].length).trim());
      made.push(codeBlock(lines.slice(at + 1, end < 0 ? lines.length : end), found[2]));
      at = end < 0 ? lines.length : end + 1;
    } else if ((found = line.match(HEADING))) {
      made.push(element(`h${Math.min(6, found[1].length + raised)}`, { class: `heading-${found[1].length}` }, ...inline(found[2].trimEnd().replace(HEADING_END, '').trimEnd())));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(element('hr'));
      at += 1;
    } else if (QUOTE.test(line)) {
      const from = at;
      while (at < lines.length && QUOTE.test(lines[at])) at += 1;
      made.push(element('blockquote', {}, ...blocks(lines.slice(from, at).map((it) => it.match(QUOTE)[1]), 0, depth + 1)));
    } else if (ITEM.test(line)) {
      const from = at;
      while (at < lines.length && (ITEM.test(lines[at]) || /^\s+\S/.test(lines[at])
        || (!lines[at].trim() && /^(\s+\S|\s*([-*+]|\d+[.)])\s)/.test(lines[at + 1] ?? '')))) at += 1;
      made.push(...lists(lines.slice(from, at), depth));
    } else if (line.includes('|') && CELLS.test((lines[at + 1] ?? '').trim())) {
      const from = at;
      while (at < lines.length && lines[at].includes('|')) at += 1;
      made.push(table(lines.slice(from, at)));
    } else {
      const from = at;
      at += 1;
      while (at < lines.length && lines[at].trim() && !begins(lines[at])) at += 1;
      made.push(element('p', {}, ...withBreaks(lines.slice(from, at))));
    }
  }
  return made;
}

function begins(line) {
  return FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || RULE.test(line);
}

function withBreaks(lines) {
  return lines.flatMap((line, at) => (at ? ['\n', ...inline(line)] : inline(line)));
}

// A list, with the lists in it.
function lists(lines, depth) {
  const made = [];
  let [list, item] = [null, null];
  const close = () => {
    if (item) list.append(listItem(item, depth));
    item = null;
  };
  const indent = lines[0].match(ITEM)[1].length;
  for (const line of lines) {
    const found = line.match(ITEM);
    if (found && found[1].length <= indent + 1) {
      close();
      const name = /\d/.test(found[2]) ? 'ol' : 'ul';
      if (!list || list.localName !== name) {
        list = element(name, name === 'ol' && parseInt(found[2], 10) !== 1 ? { start: parseInt(found[2], 10) } : {});
        made.push(list);
      }
      item = [found[3]];
    } else item?.push(line.replace(/^\s{1,4}/, ''));
  }
  close();
  return made;
}

// An item that begins with [ ] or [x] is a task, which is open or done.
function listItem(lines, depth) {
  const [, mark] = lines[0].match(TASK) ?? [];
  if (!mark) return element('li', {}, ...blocksOfItem(lines, depth));
  const isDone = mark !== ' ';
  return element('li', { class: 'task-item' }, element('input', { type: 'checkbox', disabled: true, checked: isDone, 'aria-label': isDone ? 'done' : 'open' }), ' ',
    ...blocksOfItem([lines[0].replace(TASK, ''), ...lines.slice(1)], depth));
}

function blocksOfItem(lines, depth) {
  const made = blocks(lines, 0, depth + 1);
  // A short item is no paragraph.
  if (made[0]?.localName === 'p') return [...made[0].childNodes, ...made.slice(1)];
  return made;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((it) => it.trim().replaceAll('\\|', '|'));
  const row = (line, name) => element('tr', {}, ...cells(line).map((it) => element(name, {}, ...inline(it))));
  return element('div', { class: 'table' }, element('table', {}, element('thead', {}, row(lines[0], 'th')),
    element('tbody', {}, ...lines.slice(2).map((line) => row(line, 'td')))));
}

// Code as it is; of a diff, what was added and removed.
export function code(lines, language = '') {
  const isDiff = (language === 'diff' || language === 'patch') && lines.length <= MOST_LINES;
  const content = isDiff ? lines.map((line) => element('span', { class: diffKind(line) }, `${line}\n`)) : highlighted(lines.join('\n'), language);
  return element('pre', { class: `code ${isDiff ? 'diff' : ''}`, 'data-language': language || null }, element('code', {}, ...content));
}

// Code of a text, with its language and a button that copies it.
function codeBlock(lines, language) {
  return element('div', { class: 'code-block' },
    element('div', { class: 'code-head' }, element('span', {}, language || 'code'), copyButton((button) => button.closest('.code-block').querySelector('code').textContent, 'Copy code')),
    code(lines, language));
}

function diffKind(line) {
  if (line.startsWith('@@')) return 'place';
  if (line.startsWith('+')) return 'added';
  return line.startsWith('-') ? 'removed' : '';
}

function inline(text) {
  const made = [];
  let rest = text;
  for (let found = rest.match(INLINE); found; found = rest.match(INLINE)) {
    if (found.index) made.push(rest.slice(0, found.index));
    made.push(span(found));
    rest = rest.slice(found.index + found[0].length);
  }
  if (rest) made.push(rest);
  return made;
}

function span(found) {
  const [whole, ticks, code_, bold, bold2, italic, italic2, struck, words, target, angled, bare] = found;
  if (ticks) return element('code', {}, code_.trim() || code_);
  if (bold ?? bold2) return element('strong', {}, ...inline(bold ?? bold2));
  if (italic ?? italic2) return element('em', {}, ...inline(italic ?? italic2));
  if (struck) return element('s', {}, ...inline(struck));
  if (target !== undefined) return link(words || target, target) ?? whole;
  return link(angled ?? bare, angled ?? bare) ?? whole;
}

// A link to the web; nothing else becomes one, whatever a model writes.
function link(words, target) {
  if (!/^mailto:/i.test(target) && !leadsToTheWeb(target)) return null;
  return element('a', { href: target, target: '_blank', rel: 'noopener noreferrer', title: target }, words);
}

// The elements of what a model or a person has written: an answer of a type is JSON, else Markdown.
export function written(text) {
  const found = json(printable(text));
  return found ? [found] : markdown(text);
}

function json(clean) {
  if (!/^\s*[[{]/.test(clean) || clean.length > LONGEST) return null;
  try {
    return code(JSON.stringify(JSON.parse(clean), null, 2).split('\n'), 'json');
  } catch {
    return null; // it only looks like JSON
  }
}

// The elements of a text of a tool: JSON in lines, else as it is.
export function structured(text) {
  const clean = printable(text);
  const found = json(clean);
  if (found) return found;
  const isDiff = /^(diff --git|--- |@@ )/m.test(clean);
  return code(clean.split('\n'), isDiff ? 'diff' : '');
}
