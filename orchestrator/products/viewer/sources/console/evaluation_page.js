// One evaluation: whether a version is better, the cases by versions, and a case's tree beside its baseline.

import { element, fill } from '../run/dom.js';
import { count, counted, duration, oneLine, printable } from '../run/format.js';
import { address } from './router.js';
import { changedWords } from './changed_words.js';
import { cost, costPlot, differencePlot, distribution, letter, number, scoreBar, signed } from './evaluation_plots.js';

const COLUMNS = 3; // of versions at first: the baseline, and the newest others

export class EvaluationPage {
  constructor(console_) {
    this.console = console_;
    this.title = element('h1');
    this.facts = element('span', { class: 'facts' });
    this.choices = element('span', { class: 'choices' });
    this.left = element('div', { class: 'cases-side' });
    this.plots = element('div');
    this.case = element('section', { class: 'case', 'aria-label': 'A case' });
    this.element = element('main', { class: 'evaluation' },
      element('header', {}, this.title, this.facts, element('span', { class: 'space' }), this.choices),
      element('div', { class: 'columns' }, this.left, element('div', { class: 'plots-side' }, this.plots, this.case)));
    this.keys = (event) => this.pressed(event);
  }

  show(route) {
    document.addEventListener('keydown', this.keys);
    const { name } = route.params;
    const [baseline, score] = ['baseline', 'score'].map((it) => route.query.get(it) ?? '');
    const wanted = JSON.stringify([name, baseline, score]);
    this.chosen = route.query.get('case');
    if (this.wanted === wanted && this.data) {
      this.drawCases();
      this.showCase();
      return;
    }
    Object.assign(this, { name, baseline, score, wanted, data: null, shown: null });
    fill(this.title, oneLine(name, 80));
    fill(this.facts, 'Reading the runs …');
    for (const part of [this.choices, this.left, this.plots, this.case]) fill(part);
    this.read(wanted);
  }

  hide() {
    document.removeEventListener('keydown', this.keys);
  }

  ask(more) {
    const query = new URLSearchParams({ dataset: this.name, baseline: this.baseline, score: this.score, ...more });
    return this.console.api.get(`console/evaluations?${query}`);
  }

  async read(wanted) {
    try {
      const data = await this.ask({});
      if (this.wanted === wanted) this.draw(data);
    } catch (error) {
      if (this.wanted === wanted) fill(this.facts, error.message);
    }
  }

  go(changes) {
    this.console.router.go(['evaluations', this.name], { baseline: this.baseline, score: this.score, case: this.chosen, ...changes });
  }

  draw(data) {
    this.data = data;
    const last = data.versions.length - 1;
    this.shown = data.versions.map((_, at) => at).filter((at) => at === 0 || at > last - (COLUMNS - 1));
    fill(this.facts, `${counted(data.cases.length, 'case')} · score: ${oneLine(data.score, 60)} · paid ${cost(data.paid)}`);
    fill(this.choices, this.choice('Baseline', data.versions.map((it) => it.name).sort(), data.versions[0].name, 'baseline'),
      data.scores.length > 1 ? this.choice('Score', data.scores, data.score, 'score') : null);
    this.drawCases();
    this.showCase();
  }

  choice(words, names, current, field) {
    const options = names.map((it) => element('option', { value: it, selected: it === current }, oneLine(it, 60)));
    return element('label', {}, `${words} `, element('select', { 'aria-label': words, onchange: ({ target }) => this.go({ [field]: target.value }) }, ...options));
  }

  drawCases() {
    const { data, shown } = this;
    fill(this.left, this.verdicts(), this.versionChips(), this.matrix());
    fill(this.plots, element('h2', {}, 'Score against cost', element('span', { class: 'hint' }, ' line: 95 % of the mean')),
      element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Score against cost' }, costPlot(data.versions, data.front, shown)),
      element('h2', {}, 'Distribution of scores'),
      element('div', { class: 'distributions' }, ...shown.map((at) => element('figure', {},
        element('figcaption', {}, this.named(at)), distribution(data.versions[at].bars, letter(at))))));
  }

  named(at, most = 40) {
    return element('span', {}, element('b', {}, letter(at)), ` ${oneLine(this.data.versions[at].name, most)}`);
  }

  verdicts() {
    const { comparisons } = this.data;
    if (!comparisons.length) return element('p', { class: 'verdicts' }, 'There is one version. Run another set of the same dataset to compare it.');
    const spans = comparisons.map((it) => it.score).filter(Boolean).flatMap((it) => [Math.abs(it.low), Math.abs(it.high)]);
    const widest = Math.max(0.05, ...spans) * 1.1;
    const rows = comparisons.map((it, index) => ({ it, at: index + 1 })).filter(({ at }) => this.shown.includes(at));
    return element('section', { class: 'verdicts', 'aria-label': 'Comparison' }, ...rows.map(({ it, at }) => element('div', {},
      element('p', { class: 'sentence' }, element('b', {}, letter(at)), ` ${oneLine(it.sentence, 400)}`),
      it.score ? element('div', { class: 'difference' }, element('span', { class: 'hint' }, `${letter(at)} − A`), differencePlot(it.score, it.verdict, widest), ...this.others(it)) : null)));
  }

  // Less is better here, and only a difference that is clear has a colour.
  others(it) {
    return ['cost', 'seconds'].filter((name) => Math.abs(it[name]?.value ?? 0) >= 0.005).map((name) => {
      const { value, low, high } = it[name];
      const kind = low > 0 ? 'failed' : high < 0 ? 'done' : 'hint';
      return element('span', { class: kind }, `${name} ${value < 0 ? '▼' : '▲'} ${Math.round(Math.abs(value) * 100)} %`);
    });
  }

  versionChips() {
    if (this.data.versions.length <= COLUMNS) return null;
    return element('div', { class: 'chips', role: 'group', 'aria-label': 'Columns' }, ...this.data.versions.map((_, at) => element('button',
      { type: 'button', class: 'chip', 'aria-pressed': String(this.shown.includes(at)), disabled: at === 0, onclick: () => this.toggle(at) }, this.named(at, 60))));
  }

  toggle(at) {
    this.shown = this.data.versions.map((_, it) => it).filter((it) => (it === at) !== this.shown.includes(it));
    this.drawCases();
    this.showCase();
    this.left.querySelectorAll('.chips button')[at]?.focus();
  }

  matrix() {
    const { data, shown } = this;
    const heads = shown.map((at) => element('th', { scope: 'colgroup', colspan: 3 }, this.named(at, 24)));
    const measures = shown.flatMap(() => ['Score', 'Cost', 'Seconds'].map((it) => element('th', { scope: 'col', class: 'number' }, it)));
    const changed = data.cases.filter((it) => this.isChanged(it));
    const same = data.cases.filter((it) => !this.isChanged(it));
    const means = shown.map((at) => data.versions[at]);
    return element('section', { 'aria-label': 'Cases' },
      element('h2', {}, 'Cases', element('span', { class: 'hint' }, data.versions.length > 1 ? ` ${counted(changed.length, 'changed case')} first` : '')),
      element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Cases by versions' }, element('table', { class: 'list matrix' },
        element('thead', {}, element('tr', {}, element('td'), ...heads), element('tr', {}, element('th', { scope: 'col' }, 'Case'), ...measures)),
        element('tbody', {}, ...changed.map((it) => this.row(it))),
        same.length ? element('tbody', {}, ...(changed.length ? [element('tr', { class: 'divider' }, element('td', { colspan: 1 + 3 * shown.length }, `${counted(same.length, 'case')} with equal scores`))] : []), ...same.map((it) => this.row(it))) : null,
        element('tfoot', {}, element('tr', {}, element('th', { scope: 'row' }, `Mean of ${count(data.cases.length)}`),
          ...means.flatMap((it) => this.cells(it, means[0], it.errors)))))));
  }

  isChanged(it) {
    const values = this.shown.map((at) => it.values[at]);
    return values.some((value) => value?.errors) || new Set(values.filter(Boolean).map((value) => value.score)).size > 1;
  }

  row(it) {
    const first = it.values[0];
    const isChosen = it.key === (this.chosen ?? this.data.cases[0].key);
    return element('tr', { 'data-case': it.key, 'aria-current': isChosen ? 'true' : null },
      element('th', { scope: 'row' }, element('a', { href: this.caseAddress(it.key) }, oneLine(it.name, 60))),
      ...this.shown.flatMap((at) => this.cells(it.values[at], first, it.values[at]?.errors)));
  }

  caseAddress(key) {
    return address(['evaluations', this.name], { baseline: this.baseline, score: this.score, case: key });
  }

  cells(value, first, errors) {
    if (!value) return [element('td', { class: 'number' }, '–'), element('td'), element('td')];
    const change = first && first !== value && value.score !== null && first.score !== null ? value.score - first.score : 0;
    return [element('td', { class: 'number score' }, errors ? element('span', { class: 'failed' }, `✗ ${count(errors)} `) : null,
      change ? element('span', { class: change > 0 ? 'done' : 'failed' }, `${change > 0 ? '▲' : '▼'} ${Math.abs(change).toFixed(2)} `) : null,
      value.score === null ? null : scoreBar(value.score), value.score === null && errors ? '' : ` ${number(value.score)}`),
    element('td', { class: 'number' }, cost(value.cost)), element('td', { class: 'number' }, value.seconds === null ? '–' : duration(value.seconds))];
  }

  async showCase() {
    const { data } = this;
    const found = data.cases.find((it) => it.key === this.chosen) ?? data.cases[0];
    const versions = this.shown.filter((at) => found.values[at]);
    const pair = versions.length > 1 ? [versions[0], versions.at(-1)] : versions;
    const wanted = `${this.wanted} ${found.key} ${pair.join()}`;
    if (this.caseWanted === wanted && this.case.childElementCount) return;
    this.caseWanted = wanted;
    const head = element('h2', {}, `Case: ${oneLine(found.name, 80)}`);
    fill(this.case, head, element('p', { class: 'hint', role: 'status' }, 'Reading its runs …'));
    try {
      const runs = await Promise.all(pair.map((at) => this.ask({ run: found.values[at].runs[0] })));
      if (this.caseWanted === wanted) this.drawCase(head, found, pair, runs);
    } catch (error) {
      if (this.caseWanted === wanted) fill(this.case, head, element('p', { class: 'empty' }, error.message));
    }
  }

  drawCase(head, found, pair, runs) {
    const answers = runs.length > 1 ? changedWords(runs[0].answer, runs[1].answer) : [null];
    const at = this.data.cases.indexOf(found);
    const step = (words, by) => {
      const other = this.data.cases[at + by];
      return other ? element('a', { class: 'chip', href: this.caseAddress(other.key) }, words) : null;
    };
    fill(this.case, head, element('div', { class: 'sides' }, ...runs.map((run, side) => this.side(pair[side], run, answers[side]))),
      element('p', { class: 'steps' }, step('‹ Previous', -1), step('Next ›', 1), element('span', { class: 'hint mouse-only' }, element('kbd', {}, '['), ' ', element('kbd', {}, ']'), ' other cases')));
  }

  side(at, run, answer) {
    const score = run.scores[this.data.score];
    const rows = run.rows.map((it) => element('tr', { class: it.kept ? 'kept' : null }, element('td', { class: 'name' }, printable(it.name)),
      element('td', { class: 'number' }, it.kept ? 'kept' : it.seconds === null ? '' : duration(it.seconds)), element('td', { class: 'number' }, cost(it.cost))));
    const reasons = Object.entries(run.scores).filter(([, it]) => it.reason);
    return element('article', { 'aria-label': `Version ${letter(at)}` },
      element('h3', {}, this.named(at), element('span', { class: 'number' }, ` ${score ? number(score.value) : '✗'}`)),
      element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Tree of ${run.run}` }, element('table', { class: 'tree' }, element('tbody', {}, ...rows,
        run.more ? element('tr', {}, element('td', { colspan: 3, class: 'hint' }, `… ${count(run.more)} more`)) : null))),
      run.error ? element('p', { class: 'failed' }, printable(run.error)) : null,
      element('pre', { class: 'answer', tabindex: 0, 'aria-label': 'Answer' }, ...(answer ?? [printable(run.answer)])),
      ...reasons.map(([name, it]) => element('p', { class: 'hint' }, `${oneLine(name, 40)}: ${oneLine(it.reason, 400)}`)),
      element('p', { class: 'hint' }, run.run));
  }

  pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || !this.data) return;
    const by = { '[': -1, ']': 1 }[event.key];
    if (!by) return;
    const at = Math.max(0, this.data.cases.findIndex((it) => it.key === this.chosen));
    const other = this.data.cases[at + by];
    if (other) this.go({ case: other.key });
  }
}
