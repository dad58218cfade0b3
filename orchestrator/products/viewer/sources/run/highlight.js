// Colours of code: comments, texts, numbers, keywords and calls. No text makes it take long: every
// part of the pattern reads each character once.

import { element } from './dom.js';

const LONGEST = 30_000; // characters: more stays without colours
const WORDS = {
  python: 'False None True and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield',
  js: 'as async await break case catch class const continue default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null of return static super switch this throw true try type typeof undefined var void while yield',
  c: 'abstract auto bool break case catch char class const continue default defer do double else enum extern false final float fn for func go goto if impl implements import in int interface let long loop match mod mut namespace new nil null package private protected pub public range return self short signed sizeof static string struct super switch template this throw throws trait true try type typedef union unsigned use using var virtual void volatile where while',
  sh: 'case do done elif else esac export fi for function if in local read return set then unset until while',
  sql: 'all and as asc begin between by case commit create delete desc distinct drop else end exists from group having in index inner insert into is join key left like limit not null on or order outer primary references right rollback select set table then union unique update values view when where with',
  data: 'true false null yes no on off',
};
const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH = String.raw`#[^\n]*`;
// [names of languages, keywords, comments, whether the case of keywords is free].
const FAMILIES = [
  ['python py python3 ruby rb r elixir', 'python', HASH],
  ['javascript js jsx typescript ts tsx mjs', 'js', SLASHES],
  ['c cpp c++ cs csharp java go golang rust rs swift kotlin php scala dart zig css scss', 'c', SLASHES],
  ['sh bash zsh shell console dockerfile makefile make', 'sh', HASH],
  ['sql postgres sqlite', 'sql', String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`, true],
  ['json jsonc yaml yml toml ini', 'data', HASH],
];
const TEXTS = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?` + '|`(?:[^`\\\\]|\\\\[^])*`?';
const LANGUAGES = new Map(FAMILIES.flatMap(([names, words, comments, isFree]) => {
  const made = {
    words: new Set(WORDS[words].split(' ')), isFree,
    parts: new RegExp(`(${comments})|(${TEXTS})|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)(?=(\\()?)`, 'g'),
  };
  return names.split(' ').map((name) => [name, made]);
}));

// The content of an element with code: texts and coloured parts.
export function highlighted(code, name) {
  const language = LANGUAGES.get(name.toLowerCase());
  if (!language || code.length > LONGEST) return [code];
  const made = [];
  let at = 0;
  for (const found of code.matchAll(language.parts)) {
    const kind = kindOf(found, language);
    if (!kind) continue;
    if (found.index > at) made.push(code.slice(at, found.index));
    made.push(element('span', { class: kind }, found[0]));
    at = found.index + found[0].length;
  }
  if (at < code.length) made.push(code.slice(at));
  return made;
}

function kindOf([, comment, text, number, word, call], { words, isFree }) {
  if (comment) return 'of-comment';
  if (text) return 'of-text';
  if (number) return 'of-number';
  if (words.has(isFree ? word.toLowerCase() : word)) return 'of-keyword';
  return call ? 'of-call' : '';
}
