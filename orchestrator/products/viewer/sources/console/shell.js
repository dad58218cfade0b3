// What all pages have around them: where one can go, whether the server is there, who is signed in.

import { element, fill } from '../run/dom.js';
import { printable } from '../run/format.js';

const STATES = {
  connecting: ['connecting', 'Connecting to the server'],
  live: ['live', 'All that is shown is as it is now'],
  lost: ['lost', 'The server is not there: what is shown is as it was. It is asked again and again.'],
  'signed out': ['signed out', 'The server does not know this browser any more'],
};
const TOAST = 6000; // milliseconds
const THEME = 'orchestrator theme';

export class Shell {
  constructor(me, places, signOut, unlock) {
    this.me = me;
    this.places = places; // [[path, words], ...]
    this.page = null;
    this.links = new Map(places.map(([path, words]) => [path, element('a', { href: `#/${path}` }, words)]));
    this.state = element('button', { type: 'button', class: 'connection', onclick: () => this.onRetry?.() });
    this.toasts = element('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' });
    this.holder = element('div', { class: 'page' });
    this.lock = me.locked.length ? element('button', { type: 'button', class: 'chip lock', title: 'This browser can neither approve nor prune yet. Click to enter the approval code.', onclick: unlock }, 'Unlock approvals') : '';
    const readOnly = me.scopes.every((it) => it === 'read');
    this.element = element('div', { class: 'shell' },
      element('header', { class: 'bar' },
        element('a', { class: 'brand', href: '#/runs' }, element('img', { src: 'console/icon.svg', alt: '', width: 20, height: 20 }), 'Orchestrator'),
        element('nav', { 'aria-label': 'Console' }, ...this.links.values()),
        this.toasts,
        readOnly ? element('span', { class: 'badge' }, 'read-only') : null,
        this.lock,
        this.state,
        element('button', { type: 'button', class: 'chip who', title: `Signed in as ${me.key}, owner ${me.owner}. Click to sign out.`, onclick: signOut }, printable(me.shown)),
        element('button', { type: 'button', class: 'chip theme', title: 'Light or dark', 'aria-label': 'Light or dark', onclick: () => this.swapTheme() }, '◑')),
      this.holder);
    this.connection('connecting');
  }

  connection(state) {
    const [word, title] = STATES[state];
    this.state.dataset.state = state.replace(' ', '-');
    this.state.title = title;
    fill(this.state, element('span', { class: 'dot', 'aria-hidden': 'true' }), word);
  }

  unlocked() {
    if (this.lock) this.lock.remove();
  }

  // Mark the place that a page belongs to, and show the page.
  show(place, page) {
    for (const [path, link] of this.links) {
      if (path === place) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
    if (this.page === page) return;
    this.page = page;
    fill(this.holder, page.element);
  }

  // Write a number behind a place; 0 removes it.
  count(path, number) {
    const link = this.links.get(path);
    if (!link) return;
    link.querySelector('.number-badge')?.remove();
    if (number) link.append(element('span', { class: 'number-badge' }, String(number)));
  }

  say(words, { failed = false } = {}) {
    const toast = element('p', { class: `toast ${failed ? 'failed' : ''}`, title: printable(words) }, printable(words));
    fill(this.toasts, toast);
    setTimeout(() => toast.remove(), TOAST);
  }

  swapTheme() {
    const { documentElement: root } = document;
    const isDark = root.dataset.theme
      ? root.dataset.theme === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = isDark ? 'light' : 'dark';
    localStorage.setItem(THEME, root.dataset.theme);
    this.page?.redraw?.();
  }
}

export function restoreTheme() {
  const theme = localStorage.getItem(THEME);
  if (theme) document.documentElement.dataset.theme = theme;
}
