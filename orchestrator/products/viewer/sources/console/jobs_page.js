// What begins by the clock: when next, how it went, and what a person does with it.

import { element, fill, patch } from '../run/dom.js';
import { oneLine } from '../run/format.js';
import { dialog } from './actions.js';
import { address } from './router.js';

const HEADINGS = ['Job', 'Begins', 'Next', 'Last run', 'Agent', 'Goal', ''];

export class JobsPage {
  constructor(console_) {
    this.console = console_;
    this.rows = element('tbody');
    this.note = element('p', { class: 'empty', role: 'status' });
    this.element = element('main', { class: 'jobs' }, element('h1', {}, 'Jobs'), this.note,
      element('div', { class: 'scroll' }, element('table', { class: 'list' },
        element('thead', {}, element('tr', {}, ...HEADINGS.map((words) => (words ? element('th', { scope: 'col' }, words) : element('td'))))), this.rows)));
    // One for all: rows that are drawn anew keep their elements.
    this.element.addEventListener('click', ({ target }) => this.clicked(target.closest('[data-do]')));
  }

  show() {
    this.stop ??= this.console.live.watch('jobs', () => this.read());
    this.read();
  }

  hide() {
    this.stop?.();
    this.stop = null;
  }

  async read() {
    try {
      const { data } = await this.console.api.get('v1/jobs');
      this.draw(data);
    } catch (error) {
      fill(this.note, error.message);
    }
  }

  draw(jobs) {
    this.jobs = new Map(jobs.map((it) => [it.id, it]));
    fill(this.note, jobs.length ? '' : 'No job is set. Write schedule = [Job(…)] in the file of your agents, or give an agent schedules=True.');
    patch(this.rows, jobs.map((it) => this.row(it)));
  }

  row(job) {
    const last = job.last_run ? element('a', { href: address(['runs', job.last_run]) }, job.last_run) : '–';
    const origin = job.session ? element('a', { href: address(['chat', job.session]), class: 'hint' }, 'of a conversation') : null;
    return element('tr', { 'data-job': job.id },
      element('th', { scope: 'row' }, oneLine(job.session ? job.id.slice(job.session.length + 1) : job.id, 60), origin),
      element('td', {}, oneLine(job.schedule, 60), element('span', { class: 'hint' }, ` ${oneLine(job.zone, 40)}`)),
      element('td', {}, job.paused ? 'paused' : this.time(job.next)),
      element('td', {}, last),
      element('td', {}, oneLine(job.agent, 60)),
      element('td', { class: 'about', title: oneLine(job.goal, 400) }, oneLine(job.goal, 120)),
      element('td', {}, element('div', { class: 'buttons' }, ...this.buttons(job))));
  }

  time(seconds) {
    return seconds === null ? 'never again' : new Date(seconds * 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
  }

  buttons(job) {
    const button = (action, words) => element('button', { type: 'button', class: 'chip', 'data-do': action, 'data-of': job.id, 'aria-label': `${words}: ${oneLine(job.id, 60)}` }, words);
    const may = (scope) => this.console.may(scope);
    return [
      may('run') ? button('run', 'Run now') : null,
      may('steer') ? button(job.paused ? 'resume' : 'pause', job.paused ? 'Resume' : 'Pause') : null,
      may('steer') && job.session ? button('remove', 'Remove') : null,
    ];
  }

  async clicked(pressed) {
    if (!pressed) return;
    const job = this.jobs.get(pressed.dataset.of);
    const path = `v1/jobs/${encodeURIComponent(job.id)}`;
    if (pressed.dataset.do === 'remove') {
      this.confirmRemoval(job, path);
      return;
    }
    await this.carryOut(async () => {
      const made = await this.console.api.post(`${path}/${pressed.dataset.do}`);
      if (pressed.dataset.do === 'run') this.console.router.go(['runs', made.id]);
    });
  }

  confirmRemoval(job, path) {
    const go = element('button', { class: 'primary', onclick: async () => {
      made.close();
      await this.carryOut(() => this.console.api.remove(path));
    } }, 'Remove');
    const keep = element('button', { type: 'button', onclick: () => made.close() }, 'Keep it');
    const made = dialog(`Remove ${oneLine(job.id, 60)}?`,
      element('p', {}, 'It begins no more. What runs of it ends in peace.'), element('div', { class: 'buttons' }, keep, go));
    keep.focus();
  }

  async carryOut(work) {
    try {
      await work();
      await this.read();
    } catch (error) {
      this.console.shell.say(error.message, { failed: true });
    }
  }
}
