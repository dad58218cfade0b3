// One run, live: the report's viewer, fed by the rows of the server.

import { element, fill } from '../run/dom.js';
import { Viewer } from '../run/viewer.js';
import { applyRows, lastMoment } from './run_rows.js';
import { LiveTranscripts } from './live_transcripts.js';

export class RunPage {
  constructor(console_) {
    this.console = console_;
    this.element = element('div', { class: 'run-page' });
    this.run = null;
  }

  show(route) {
    const { run, task } = route.params;
    if (run !== this.run) this.open(run);
    this.wanted = { task, view: route.query.get('view') ?? 'tree' };
    this.follow();
  }

  open(run) {
    this.hide();
    this.run = run;
    this.model = null;
    this.viewer = null;
    this.seq = 0;
    fill(this.element, element('p', { class: 'empty' }, 'Reading the run …'));
    this.stop = this.console.live.watch(`run:${run}`, (message) => this.receive(message));
    this.timer = setInterval(() => this.tick(), 500);
  }

  hide() {
    this.stop?.();
    this.stop = null;
    clearInterval(this.timer);
    this.run = null;
  }

  receive(message) {
    if (message.error) {
      fill(this.element, element('p', { class: 'empty' }, message.error));
      return;
    }
    const { model, isNew, hasGrown } = applyRows(this.model, message);
    this.model = model;
    if (message.more) return;
    this.seq = message.seq;
    this.isWorking = message.working;
    this.budgets = message.budgets;
    this.setTime(message.at);
    if (isNew) this.build();
    else this.viewer.changed({ hasGrown });
  }

  setTime(now) {
    this.model.last = this.isWorking ? Math.max(now, this.model.start) : lastMoment(this.model);
  }

  tick() {
    if (!this.viewer || !this.isWorking) return;
    this.setTime(this.console.now());
    this.viewer.changed({ hasGrown: false });
  }

  build() {
    const { model } = this;
    this.viewer = new Viewer(model, {
      title: model.agent[0], transcripts: new LiveTranscripts(this.console.api), live: this,
    });
    fill(this.element, this.viewer.element);
    this.viewer.collapseToFit();
    this.follow();
    this.viewer.drawNow();
  }

  header() {
    return [element('span', { class: 'badge' }, this.isWorking ? 'live' : 'ended')];
  }

  // Show the task and the view that the address names.
  follow() {
    if (!this.viewer) return;
    const { task, view } = this.wanted;
    if (view !== this.viewer.tab) this.viewer.showTab(view);
    const number = this.model.numbers.get(task);
    if (number !== undefined && this.viewer.active !== task) this.viewer.reveal(number, { quietly: true });
  }

  redraw() {
    this.viewer?.draw();
  }
}
