// Branches of a conversation: an edited or repeated message begins another conversation with the same
// messages before it. Its metadata names the conversation and the message.

import { element } from '../run/dom.js';
import { address } from './router.js';

function origin(session) {
  const { branch_of: of, branch_at: at } = session?.metadata ?? {};
  return of && /^\d+$/.test(at) ? { of, at: Number(at) } : null;
}

// The first conversation of the family of one.
export function familyOf(sessions, id) {
  const seen = new Set();
  let found = id;
  for (let from = origin(sessions.get(found)); from && !seen.has(found); from = origin(sessions.get(found))) {
    seen.add(found);
    found = from.of;
  }
  return found;
}

// The conversations that have another message at this number, and the place of this one among them.
export function alternatives(sessions, id, number) {
  let [base, member] = [id, id];
  for (let steps = sessions.size; steps >= 0; steps -= 1) {
    const from = origin(sessions.get(base));
    if (!from || number > from.at) break;
    member = base;
    base = from.of;
    if (number === from.at) break;
    member = base;
  }
  const others = [...sessions.values()].filter((it) => origin(it)?.of === base && origin(it).at === number).sort((one, other) => one.created - other.created);
  const members = [base, ...others.map((it) => it.id)].filter((it) => it === id || sessions.has(it));
  return { members, at: members.indexOf(member) };
}

// ‹ 2/3 ›: the arrows open the branches beside this one.
export function branchSwitch(sessions, id, number) {
  const { members, at } = alternatives(sessions, id, number);
  if (members.length < 2 || at < 0) return null;
  const arrow = (words, title, to) => (members[to]
    ? element('a', { class: 'quiet', href: address(['chat', members[to]]), 'aria-label': title }, words)
    : element('span', { class: 'quiet', 'aria-hidden': 'true' }, words));
  return element('span', { class: 'branches', role: 'group', 'aria-label': `Branch ${at + 1} of ${members.length}` },
    arrow('‹', 'Previous branch', at - 1), `${at + 1}/${members.length}`, arrow('›', 'Next branch', at + 1));
}
