// The entry point: signs in, then shows the page that the address names.

import { Api } from './api.js';
import { ChatPage } from './chat_page.js';
import { Inbox } from './inbox.js';
import { InboxPage } from './inbox_page.js';
import { ComparePage } from './compare_page.js';
import { EvaluationPage } from './evaluation_page.js';
import { EvaluationsPage } from './evaluations_page.js';
import { JobsPage } from './jobs_page.js';
import { Live } from './live.js';
import { Login } from './login.js';
import { NewRunPage } from './new_run_page.js';
import { OverviewPage } from './overview_page.js';
import { Router } from './router.js';
import { RunPage } from './run_page.js';
import { RunsPage } from './runs_page.js';
import { Shell, restoreTheme } from './shell.js';
import { unlockDialog } from './unlock_dialog.js';
import { keepPageSecret, saveFile } from '../run/page_secret.js';

// [address, page, the place in the bar that it belongs to].
const PAGES = [
  ['runs', RunsPage, 'runs'],
  ['overview', OverviewPage, 'overview'],
  ['new', NewRunPage, 'runs'],
  ['compare/:one/:other', ComparePage, 'runs'],
  ['runs/:run', RunPage, 'runs'],
  ['runs/:run/tasks/:task', RunPage, 'runs'],
  ['chat', ChatPage, 'chat'],
  ['chat/:session', ChatPage, 'chat'],
  ['jobs', JobsPage, 'jobs'],
  ['evaluations', EvaluationsPage, 'evaluations'],
  ['evaluations/:name', EvaluationPage, 'evaluations'],
  ['inbox', InboxPage, 'inbox'],
];
const PLACES = [['overview', 'Overview'], ['runs', 'Runs'], ['chat', 'Chat'], ['jobs', 'Jobs'], ['evaluations', 'Evaluations'], ['inbox', 'Inbox']];

class Console {
  constructor() {
    this.api = new Api(() => this.signedOut(), (scope) => this.unlock(scope));
    this.login = new Login(this.api, () => this.start());
    this.pages = new Map();
  }

  async open() {
    restoreTheme();
    document.addEventListener('click', (event) => this.clicked(event));
    const [, code] = location.hash.match(/^#\/login\/([\w-]+)$/) ?? [];
    if (code) {
      // It is worth nothing after this, and has no place in the history of the browser.
      history.replaceState(null, '', location.pathname);
      if (await this.login.signIn({ code })) return;
      // A link that was used here is of one who is signed in.
    }
    if (await this.login.comeBack()) return;
    await this.start();
  }

  async start() {
    try {
      this.me = await this.api.get('console/me');
    } catch (error) {
      if (error.status !== 401) this.login.say(error.message);
      this.signedOut();
      return;
    }
    this.offset = this.me.now - Date.now() / 1000; // the server's clock, seen from here
    this.shell = new Shell(this.me, PLACES, () => this.signOut(), () => this.unlock());
    this.live ??= new Live(this.me.version, (state) => this.changed(state));
    this.live.retry();
    this.shell.onRetry = () => this.live.retry();
    this.shell.connection(this.live.state);
    document.body.replaceChildren(this.shell.element);
    this.router ??= new Router(PAGES.map(([pattern, ...page]) => [pattern, page]), (route) => this.show(route));
    this.pages.clear();
    this.inbox ??= new Inbox(this);
    this.inbox.open();
    this.router.read();
  }

  // Whether the person may do something, if need be with the approval code.
  may(scope) {
    return this.me.scopes.includes(scope) || this.me.locked.includes(scope);
  }

  // Ask for the approval code if it adds a scope; return whether the sign-in has the scope now.
  async unlock(scope) {
    this.me = await this.api.get('console/me');
    if (!this.me.locked.length || (scope && !this.me.locked.includes(scope))) return false;
    this.unlocking ??= unlockDialog(this).finally(() => { this.unlocking = null; });
    if (!await this.unlocking) return false;
    this.me = await this.api.get('console/me');
    this.shell.unlocked();
    this.live.retry(); // an admin sees the runs of all owners
    return true;
  }

  // The time by the server's clock.
  now() {
    return Date.now() / 1000 + this.offset;
  }

  show(route) {
    const [Page, place] = route.value;
    if (!this.pages.has(Page)) this.pages.set(Page, new Page(this));
    const page = this.pages.get(Page);
    if (this.page !== page) this.page?.hide();
    this.page = page;
    this.shell.show(place, page);
    page.show(route);
  }

  // A browser that follows a link by itself does not send the page secret.
  clicked(event) {
    const link = event.target.closest('a[download]');
    if (!link) return;
    event.preventDefault();
    saveFile(link.href, link.download).catch((error) => this.shell.say(error.message, { failed: true }));
  }

  changed(state) {
    this.shell?.connection(state);
    if (state === 'signed out') this.signedOut();
    // Another tab has signed in.
    else if (state === 'live' && this.login.element.isConnected) this.start();
  }

  signedOut() {
    this.inbox?.close();
    this.page?.hide();
    this.page = null;
    document.body.replaceChildren(this.login.element);
  }

  async signOut() {
    await this.api.post('console/logout');
    keepPageSecret('');
    this.signedOut();
  }
}

globalThis.orchestrator = new Console();
globalThis.orchestrator.opened = globalThis.orchestrator.open();
