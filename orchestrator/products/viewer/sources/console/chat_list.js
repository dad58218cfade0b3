// The list of conversations: the last one first, which of them is at work, and which has something new.

import { element, fill, patch } from '../run/dom.js';
import { oneLine } from '../run/format.js';
import { familyOf } from './branches.js';
import { address } from './router.js';

const PAGE = 100;
const MOST_PAGES = 5; // a page may be empty: the server looks through so many runs, and not all are conversations
const MINUTE = 60_000;
const STATES = { in_progress: '◐ at work', waiting: '! waits for you' };

// The newest conversations, or those after one; `next` tells where the rest begins, if there are more.
export async function newestSessions(api, after = '') {
  const data = [];
  let next = after;
  for (let pages = 0; pages < MOST_PAGES && data.length < PAGE && next !== null; pages += 1) {
    const page = await api.get(`v1/sessions?limit=${PAGE}${next ? `&after=${encodeURIComponent(next)}` : ''}`);
    data.push(...page.data);
    next = page.has_more ? page.last_id : null;
  }
  return { data, next };
}

export class ChatList {
  // changed: called when what is known of conversations has changed, with the ids of those that were deleted.
  constructor(console_, changed) {
    this.console = console_;
    this.changed = changed;
    this.sessions = new Map();
    this.newer = new Map(); // id to conversation, or to null if it was deleted: told since a page was asked for
    this.current = null;
    this.next = null;
    this.search = element('input', { type: 'search', placeholder: 'Search conversations', 'aria-label': 'Search conversations', oninput: () => this.draw() });
    this.isRead = false;
    this.begin = element('a', { class: 'chip', href: '#/chat?new=1' }, 'New chat', element('kbd', { class: 'mouse-only' }, 'n'));
    this.items = element('nav', { class: 'sessions', 'aria-label': 'Conversations' });
    this.older = element('button', { type: 'button', class: 'chip', hidden: true, onclick: () => this.read(this.next) }, 'Show older ones');
    this.element = element('div', { class: 'chat-list' },
      element('div', { class: 'chat-new' }, console_.may('run') ? this.begin : null), this.search, this.items, this.older);
  }

  show() {
    if (this.stop) return;
    this.stop = this.console.live.watch('runs', (message) => this.receive(message));
    this.timer = setInterval(() => this.draw(), MINUTE);
  }

  hide() {
    this.stop?.();
    this.stop = null;
    clearInterval(this.timer);
  }

  select(session) {
    this.current = session;
    this.draw();
  }

  get selected() {
    return this.sessions.get(this.current);
  }

  async read(after = '') {
    const newer = after ? this.newer : (this.newer = new Map());
    this.older.disabled = true;
    try {
      const { data, next } = await newestSessions(this.console.api, after);
      for (const session of data) this.sessions.set(session.id, session);
      for (const [id, session] of newer) this.keep(id, session);
      this.next = next;
      this.isRead = true;
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
    this.older.disabled = false;
    this.draw();
    this.changed([]);
  }

  receive({ runs = [], deleted = [], begins }) {
    if (begins) this.read();
    const mine = runs.filter((run) => run.kind === 'conversation');
    for (const [id, session] of [...mine.map((run) => [run.id, run]), ...deleted.map((id) => [id, null])]) this.keep(id, session);
    this.draw();
    this.changed(deleted);
  }

  keep(id, session) {
    this.newer.set(id, session);
    if (session) this.sessions.set(id, session);
    else this.sessions.delete(id);
  }

  title(session) {
    return oneLine(session?.metadata?.title || session?.about || 'New conversation', 80);
  }

  draw() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const unread = new Set(this.console.inbox.replies.map((it) => it.session));
    const newest = new Map(); // family to its newest branch: one row for all branches
    for (const it of this.sessions.values()) {
      const family = familyOf(this.sessions, it.id);
      const other = newest.get(family);
      if (!other || it.id === this.current || (other.id !== this.current && other.changed < it.changed)) newest.set(family, it);
    }
    const found = [...newest.values()]
      .filter((it) => words.every((word) => `${this.title(it)} ${it.about} ${it.agent}`.toLowerCase().includes(word)))
      .sort((one, other) => other.changed - one.changed);
    const now = this.console.now();
    const rows = found.flatMap((it, at) => {
      const day = dayOf(it.changed);
      return [at && dayOf(found[at - 1].changed) === day ? null : element('h2', {}, day), this.row(it, now, unread)];
    });
    patch(this.items, rows);
    if (!found.length) fill(this.items, element('p', { class: 'hint' }, words.length ? 'Nothing is found.' : this.isRead ? 'No conversation yet.' : 'Reading …'));
    this.older.hidden = this.next === null;
  }

  row(it, now, unread) {
    return element('a', { href: address(['chat', it.id]), 'aria-current': it.id === this.current ? 'page' : null },
      element('b', {}, this.title(it)),
      element('small', { class: it.status === 'waiting' ? 'waiting' : null }, `${oneLine(it.agent, 40)} · ${STATES[it.status] ?? ago(now - it.changed)}`),
      unread.has(it.id) && it.id !== this.current ? element('span', { class: 'number-badge' }, 'new') : null);
  }

  async create(agent, key) {
    const session = await this.console.api.post('v1/sessions', { model: agent }, key);
    this.keep(session.id, session);
    return session.id;
  }

  // An empty title gives it the name that it has by itself.
  async rename(id, title) {
    try {
      this.keep(id, await this.console.api.post(`v1/sessions/${encodeURIComponent(id)}`, { metadata: { title } }));
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
    this.draw();
    this.changed([]);
  }
}

function ago(seconds) {
  if (seconds < 60) return 'now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86_400)} d ago`;
}

function dayOf(at) {
  const day = new Date(at * 1000);
  day.setHours(0, 0, 0, 0);
  const today = new Date();
  today.setHours(0, 0, 0, 0);
  const days = Math.round((today - day) / 86_400_000);
  return days < 1 ? 'Today' : days === 1 ? 'Yesterday' : days < 7 ? 'This week' : 'Earlier';
}
