// What waits for a person: approvals, replies of conversations, and failures that were not read.
//
// It is known on every page: a number in the bar and in the title, and a notification if that is allowed.

import { oneLine } from '../run/format.js';
import { newestSessions } from './chat_list.js';
import { Failures } from './failures.js';

const SOON = 400; // milliseconds: replies come in bursts
const UNDER_WAY = ['queued', 'in_progress', 'waiting'];
const MOST_READ = 10; // conversations

export class Inbox {
  constructor(console_) {
    this.console = console_;
    this.approvals = [];
    this.hasApprovals = false; // until the server has told which there are
    this.hasReplies = false;
    this.taken = new Set(); // replies that a person has seen
    this.replies = []; // {session, agent, turn, text, status}
    this.conversations = new Map(); // the newest ones
    this.failures = new Failures(console_, () => this.changed());
    this.stale = new Map(); // the conversations to read again: id to agent
    this.listeners = new Set();
    this.known = null; // the ids that were seen: none is a novelty when the page is opened
  }

  open() {
    const { live } = this.console;
    this.close();
    const stops = [
      live.watch('approvals', ({ approvals }) => approvals && this.receive(approvals)),
      live.watch('runs', (message) => this.receiveRuns(message)),
    ];
    this.stop = () => stops.forEach((stop) => stop());
  }

  close() {
    this.stop?.();
    this.stop = null;
    clearTimeout(this.timer);
    this.timer = null;
    this.failures.close();
  }

  // What waits, and what is unread.
  get count() {
    return this.approvals.length + this.replies.length + this.failures.unread.length;
  }

  // The conversations that were answered, and all of whose replies were read; the latest first.
  get answered() {
    const unread = new Set(this.replies.map((it) => it.session));
    return [...this.conversations.values()]
      .filter((it) => it.about && !UNDER_WAY.includes(it.status) && !unread.has(it.id))
      .sort((one, other) => other.changed - one.changed).slice(0, MOST_READ);
  }

  // Call `changed` whenever something comes or goes; return what ends it.
  listen(changed) {
    this.listeners.add(changed);
    return () => this.listeners.delete(changed);
  }

  receive(approvals) {
    this.approvals = approvals;
    this.hasApprovals = true;
    this.changed();
  }

  receiveRuns({ runs = [], deleted = [], begins }) {
    if (begins) {
      this.read();
      this.failures.read();
    }
    this.failures.receive(runs, deleted);
    for (const run of runs.filter((it) => it.kind === 'conversation')) {
      this.stale.set(run.id, run.agent);
      this.conversations.set(run.id, run);
    }
    for (const id of deleted) {
      this.stale.delete(id);
      this.conversations.delete(id);
    }
    if (deleted.length) this.keep((it) => !deleted.includes(it.session), []);
    if (this.stale.size) this.timer ??= setTimeout(() => this.readStale(), SOON);
  }

  // All conversations that have replies.
  async read() {
    try {
      const sessions = await newestSessions(this.console.api);
      this.conversations = new Map(sessions.data.map((it) => [it.id, it]));
      const found = await Promise.all(sessions.data.filter((it) => it.inbox).map(({ id, agent }) => this.repliesOf(id, agent)));
      this.hasReplies = true;
      this.keep((it) => this.stale.has(it.session), found.flat().filter((it) => !this.stale.has(it.session)));
    } catch {
      // It is read again with the next change.
    }
  }

  // The conversations that have changed.
  async readStale() {
    this.timer = null;
    const stale = [...this.stale];
    this.stale.clear();
    try {
      const found = await Promise.all(stale.map(([id, agent]) => this.repliesOf(id, agent)));
      this.keep((it) => !stale.some(([id]) => id === it.session), found.flat());
    } catch {
      // It is read again with the next change.
    }
  }

  async repliesOf(session, agent) {
    try {
      const { data } = await this.console.api.get(`v1/sessions/${session}/inbox`);
      return data.map((reply) => ({ ...reply, session, agent }));
    } catch (error) {
      if (error.status === 404) return []; // it was deleted
      throw error;
    }
  }

  // Keep some of the replies, and add others.
  keep(isKept, added) {
    // An answer that was asked for before a reply was taken may still have it.
    const isTaken = (reply) => this.taken.has(`${reply.session} ${reply.turn}`);
    this.replies = [...this.replies.filter(isKept), ...added.filter((it) => !isTaken(it))];
    this.changed();
  }

  // A person has seen the replies of a conversation. Another tab may have taken them before.
  async take(session) {
    if (!this.console.may('run')) return;
    const taken = this.replies.filter((it) => it.session === session && !it.isTaken);
    // All at once: the same may be asked for again meanwhile.
    for (const reply of taken) reply.isTaken = this.taken.add(`${session} ${reply.turn}`);
    for (const reply of taken) {
      try {
        await this.console.api.remove(`v1/sessions/${session}/inbox/${reply.turn}`);
      } catch (error) {
        if (error.status !== 404) {
          for (const it of taken) {
            it.isTaken = false;
            this.taken.delete(`${session} ${it.turn}`);
          }
          return;
        }
      }
      this.replies = this.replies.filter((it) => it.session !== session || it.turn !== reply.turn);
      this.changed();
    }
  }

  changed() {
    this.console.shell.count('inbox', this.count);
    document.title = this.count ? `(${this.count}) Orchestrator` : 'Orchestrator';
    const now = new Map([
      ...this.approvals.map((it) => [it.id, [`Approval needed: ${it.tool}`, it.subject, `#/runs/${it.run}/tasks/${it.task}`]]),
      ...this.replies.map((it) => [`${it.session} ${it.turn}`, [`${it.agent} has answered`, it.text, `#/chat/${it.session}`]]),
      ...this.failures.unread.map((it) => [`${it.run} ${it.last}`, [`${it.agent} has failed`, it.tasks[0].error, `#/runs/${it.run}/tasks/${it.tasks[0].task}`]]),
    ]);
    if (this.known) for (const [id, words] of now) if (!this.known.has(id)) this.notify(id, ...words);
    this.known = new Set(now.keys());
    for (const listener of this.listeners) listener();
  }

  notify(id, title, body, address) {
    if (!document.hidden || globalThis.Notification?.permission !== 'granted') return;
    // By its tag, several tabs show it once.
    const notification = new Notification(oneLine(title, 80), { body: oneLine(body, 160), tag: id });
    notification.addEventListener('click', () => {
      window.focus();
      location.hash = address;
    });
  }
}
