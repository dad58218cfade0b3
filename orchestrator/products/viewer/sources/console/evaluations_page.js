// The evaluations that the server's journals and its folder of sets have.

import { element, fill } from '../run/dom.js';
import { count, counted, oneLine } from '../run/format.js';
import { address } from './router.js';
import { cost, number } from './evaluation_plots.js';

const HEADINGS = [['Evaluation'], ['Cases', 'number'], ['Versions', 'number'], ['Runs', 'number'], ['Errors', 'number'], ['Latest version'], ['Mean score', 'number'], ['Paid', 'number'], ['Last run']];

export class EvaluationsPage {
  constructor(console_) {
    this.console = console_;
    this.rows = element('tbody');
    this.note = element('p', { class: 'empty', role: 'status' });
    this.table = element('div', { class: 'scroll', hidden: true }, element('table', { class: 'list' },
      element('thead', {}, element('tr', {}, ...HEADINGS.map(([words, kind]) => element('th', { scope: 'col', class: kind }, words)))), this.rows));
    this.element = element('main', { class: 'evaluations' }, element('h1', {}, 'Evaluations'), this.note, this.table);
  }

  show() {
    if (this.table.hidden) fill(this.note, 'Reading the sets …');
    this.read();
  }

  hide() {}

  async read() {
    try {
      const { data, unreadable } = await this.console.api.get('console/evaluations');
      fill(this.rows, ...data.map((it) => this.row(it)));
      this.table.hidden = !data.length;
      const empty = 'No evaluation has runs yet. Run: orchestrator eval team.py cases.yaml --set a, in the folder of this server.';
      fill(this.note, data.length ? '' : empty, unreadable.length ? ` These files cannot be read: ${oneLine(unreadable.join(', '), 400)}.` : '');
    } catch (error) {
      fill(this.note, error.message);
    }
  }

  row(it) {
    return element('tr', { 'data-evaluation': it.name },
      element('th', { scope: 'row' }, element('a', { href: address(['evaluations', it.name]) }, oneLine(it.name, 60))),
      element('td', { class: 'number', 'data-unit': 'cases' }, count(it.cases)),
      element('td', { class: 'number', 'data-unit': it.versions.length === 1 ? 'version' : 'versions', title: oneLine(it.versions.join(', '), 400) }, count(it.versions.length)),
      element('td', { class: 'number', 'data-unit': it.runs === 1 ? 'run' : 'runs' }, count(it.runs)),
      element('td', { class: 'number', 'data-unit': it.errors ? null : 'errors' }, it.errors ? element('span', { class: 'failed' }, `✗ ${counted(it.errors, 'error')}`) : '0'),
      element('td', { class: 'about' }, oneLine(it.latest, 80)),
      element('td', { class: 'number', 'data-unit': oneLine(it.score, 30) }, number(it.mean)),
      element('td', { class: 'number' }, cost(it.paid)),
      element('td', {}, new Date(it.changed * 1000).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' })));
  }
}
