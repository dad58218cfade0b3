// The words of two texts that differ, marked as removed and added.

import { element } from '../run/dom.js';
import { printable } from '../run/format.js';

const MOST = 600; // words: more of them are compared for too long, and nobody reads the marks

// Return the content of both texts: strings, and elements for the words that only one of them has.
export function changedWords(first, second) {
  const [a, b] = [first, second].map((text) => printable(text).match(/\s*\S+/g) ?? []);
  if (a.length > MOST || b.length > MOST) return [[a.join('')], [b.join('')]];
  // lengths[i][j]: the length of the longest common sequence of the rests from i and j on.
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = a[i].trim() === b[j].trim() ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const sides = [[], []];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i].trim() === b[j].trim()) {
      sides[0].push(a[i++]);
      sides[1].push(b[j++]);
    } else if (j === b.length || (i < a.length && lengths[i + 1][j] >= lengths[i][j + 1])) sides[0].push(element('del', {}, a[i++]));
    else sides[1].push(element('ins', {}, b[j++]));
  }
  return sides;
}
