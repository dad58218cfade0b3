// Where the money went: tasks merged by the agents above them, so any run is some hundred boxes.

import { hierarchy, partition } from 'd3-hierarchy';
import { FONT, element, fitted, palette, drawingContext } from './dom.js';
import { cached, count, exactMoney, money, oneLine, tokens } from './format.js';
import { CACHED, COST, INPUT, OUTPUT, SAVED } from './model.js';

const LINE = 44; // at most: a deep run has lower boxes

export class Cost {
  constructor(viewer) {
    this.viewer = viewer;
    this.canvas = element('canvas', {
      class: 'drawing', role: 'img', tabindex: 0,
      'aria-label': 'Costs by agent; the tab "Tree + time" says the same in words',
    });
    this.trail = element('nav', { class: 'trail', 'aria-label': 'Where in the costs' });
    this.by = element('button', { type: 'button', class: 'chip', onclick: () => this.swap() });
    this.note = element('p', { class: 'note' });
    this.element = element('div', { class: 'costs' },
      element('div', { class: 'trail-line' }, this.trail, this.by), this.canvas, this.note);
    this.field = viewer.model.ofTotal(0, COST) ? 'cost' : 'tokens';
    this.hues = new Map();
    this.merged = this.merge();
    this.focus = this.merged;
    this.canvas.addEventListener('click', (event) => {
      const node = this.at(event);
      if (node) this.enter(node.data === this.focus ? this.focus.parent ?? this.focus : node.data);
    });
    this.canvas.addEventListener('mousemove', (event) => {
      const node = this.at(event);
      this.canvas.title = node ? this.words(node.data, exactMoney) : '';
    });
  }

  // Merge again with the next drawing, and stay where the reader is.
  changed() {
    this.merged = null;
  }

  remerge() {
    const trail = [];
    for (let box = this.focus; box?.parent; box = box.parent) trail.unshift(box.agent);
    this.merged = this.merge();
    this.focus = trail.reduce((box, agent) => box.byAgent.get(agent) ?? box, this.merged);
  }

  // Tasks with the same agents above them become one box.
  merge() {
    const { model } = this.viewer;
    const boxes = new Array(model.size);
    const made = (agent, parent) => ({
      agent, parent, children: [], byAgent: new Map(), tasks: 0, cost: 0, unknown: 0, tokens: 0,
      input: 0, cached: 0, saved: 0, all: 0, failed: 0,
    });
    let root = null;
    this.boxes = 0;
    for (let number = 0; number < model.size; number += 1) {
      const parent = model.parent[number] < 0 ? null : boxes[model.parent[number]];
      let box = parent ? parent.byAgent.get(model.agent[number]) : root;
      if (!box) {
        box = made(model.agent[number], parent);
        this.boxes += 1;
        if (parent) {
          parent.byAgent.set(box.agent, box);
          parent.children.push(box);
        } else root = box;
      }
      boxes[number] = box;
      box.tasks += 1;
      box.cost += model.ofOwn(number, COST);
      box.unknown += model.unknownOwn(number);
      box.tokens += model.ofOwn(number, INPUT) + model.ofOwn(number, OUTPUT);
      box.input += model.ofOwn(number, INPUT);
      box.cached += model.ofOwn(number, CACHED);
      box.saved += model.ofOwn(number, SAVED);
    }
    return root;
  }

  // The same agent has the same colour wherever it is, as far from the others as can be.
  hue(agent) {
    if (!this.hues.has(agent)) this.hues.set(agent, (210 + 137.5 * this.hues.size) % 360);
    return this.hues.get(agent);
  }

  swap() {
    this.field = this.field === 'cost' ? 'tokens' : 'cost';
    this.viewer.draw();
  }

  enter(box) {
    this.focus = box;
    this.viewer.draw();
  }

  layout(width, height) {
    const root = hierarchy(this.focus).sum((box) => box[this.field])
      .sort((one, other) => other.value - one.value);
    const lines = root.height + 1;
    partition().size([width, Math.min(height, lines * LINE)]).padding(1)(root);
    this.nodes = root.descendants().filter((node) => node.x1 - node.x0 >= 1);
    this.hidden = root.descendants().length - this.nodes.length;
    this.all = root.value;
  }

  words(box, price) {
    let [cost, unknown, read, tasks] = [0, 0, 0, 0];
    const visit = (it) => {
      cost += it.cost; unknown += it.unknown; read += it.tokens; tasks += it.tasks;
      it.children.forEach(visit);
    };
    visit(box);
    return `${oneLine(box.agent, 40)} ×${count(box.tasks)} · ${price(cost, unknown)} · ${tokens(read)} tokens${
      tasks > box.tasks ? ` · ${count(tasks)} agents with all below` : ''}${
      box.cached || box.saved ? ` · from a cache: ${cached(box.cached, box.input, box.saved)}` : ''}`;
  }

  draw() {
    const tools = drawingContext(this.canvas);
    if (!tools) return;
    const { context, width, height } = tools;
    const colours = palette();
    if (!this.merged) this.remerge();
    this.layout(width, height);
    this.crumbs();
    this.by.textContent = this.field === 'cost' ? 'width: cost · show tokens' : 'width: tokens · show cost';
    this.nodes.forEach((node) => this.box(context, colours, node));
    const { model } = this.viewer;
    const lower = model.ofTotal(0)
      ? ` · ${count(model.ofTotal(0))} calls have no known price, so costs marked ≥ are lower bounds` : '';
    this.note.textContent = `${count(model.size)} agents in ${count(this.boxes)} boxes, merged by the agents above them${
      this.hidden ? `; ${count(this.hidden)} are too narrow to draw here` : ''} · click looks inside${lower}`;
    if (!this.all) {
      context.fillStyle = colours.quiet;
      context.font = FONT;
      context.fillText(this.field === 'cost' ? 'No price is known for any call: show tokens instead.'
        : 'No tokens were used.', 12, LINE + 20);
    }
  }

  crumbs() {
    const steps = [];
    for (let box = this.focus; box; box = box.parent) steps.unshift(box);
    this.trail.replaceChildren(...steps.flatMap((box, place) => [
      place ? element('span', { 'aria-hidden': 'true' }, ' › ') : '',
      box === this.focus ? element('strong', {}, oneLine(box.agent, 40))
        : element('button', { class: 'link', type: 'button', onclick: () => this.enter(box) },
          oneLine(box.agent, 40)),
    ]).filter(Boolean));
  }

  box(context, colours, node) {
    const { x0, x1, y0, y1, data } = node;
    const share = this.all ? node.value / this.all : 0;
    context.fillStyle = `hsl(${this.hue(data.agent)} ${colours['box-tone']})`;
    context.fillRect(x0, y0, x1 - x0, y1 - y0);
    const wide = x1 - x0 - 12;
    if (wide < 20) return;
    const middle = (y0 + y1) / 2;
    context.fillStyle = colours.ink;
    context.font = `600 ${FONT}`;
    context.fillText(fitted(context, `${oneLine(data.agent, 40)} ×${count(data.tasks)}`, wide), x0 + 6, middle - 8);
    context.font = FONT.replace('12px', '11px');
    const amount = this.field === 'cost' ? money(node.value, below(data)) : tokens(node.value);
    const percent = `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;
    // Half a number is a wrong one.
    const text = [`${amount} · ${percent}`, amount, percent].find((it) => context.measureText(it).width <= wide);
    if (text) context.fillText(text, x0 + 6, middle + 8);
  }

  at(event) {
    return this.nodes?.find((node) => event.offsetX >= node.x0 && event.offsetX <= node.x1
      && event.offsetY >= node.y0 && event.offsetY <= node.y1) ?? null;
  }
}

function below(box) {
  return box.unknown + box.children.reduce((sum, child) => sum + below(child), 0);
}
