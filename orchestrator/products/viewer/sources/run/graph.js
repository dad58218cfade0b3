// The rows of the tree as boxes and lines, laid out by d3-hierarchy: for what can be read at once.

import { hierarchy, tree } from 'd3-hierarchy';
import { FONT, element, fitted, palette, drawingContext, setNote } from './dom.js';
import { count, duration, money, oneLine, tokens } from './format.js';
import { COST, ESTIMATED } from './model.js';
import { describe } from './status.js';

const [WIDE, HIGH, GAP_X, GAP_Y] = [232, 42, 52, 9];
const MOST = 3000; // boxes: no browser moves more of them, and no reader follows them
const SMALLEST = 0.62; // smaller boxes cannot be read: scroll instead

export class Graph {
  constructor(viewer) {
    this.viewer = viewer;
    this.canvas = element('canvas', {
      class: 'drawing', role: 'img', tabindex: 0,
      'aria-label': 'The visible rows as a graph; the tab "Tree + time" says the same in words',
    });
    this.note = element('p', { class: 'note' });
    this.element = element('div', { class: 'graph' }, this.canvas, this.note);
    this.place = null; // {x, y, zoom}
    this.rows = null;
    this.isMoved = false; // by the reader: from then on it stays where it is
    this.addListeners();
  }

  addListeners() {
    const { canvas, viewer } = this;
    let held = null;
    canvas.addEventListener('pointerdown', (event) => {
      held = { x: event.offsetX, y: event.offsetY, moved: false, ...this.place && { at: { ...this.place } } };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (!held?.at) return;
      const [x, y] = [event.offsetX - held.x, event.offsetY - held.y];
      held.moved ||= Math.abs(x) + Math.abs(y) > 4;
      this.isMoved ||= held.moved;
      if (held.moved) this.place = { ...this.place, x: held.at.x + x, y: held.at.y + y };
      viewer.draw();
    });
    canvas.addEventListener('pointerup', (event) => {
      const row = held?.moved ? null : this.at(event);
      held = null;
      if (row) viewer.select(row.key);
    });
    canvas.addEventListener('dblclick', (event) => {
      const row = this.at(event);
      if (row) viewer.toggle(row);
    });
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 0.87 : 1.15, event.offsetX, event.offsetY);
    }, { passive: false });
  }

  zoom(by, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    if (!this.place) return;
    const zoom = Math.min(2, Math.max(0.02, this.place.zoom * by));
    const ratio = zoom / this.place.zoom;
    this.isMoved = true;
    this.place = { x: x - (x - this.place.x) * ratio, y: y - (y - this.place.y) * ratio, zoom };
    this.viewer.draw();
  }

  // The rows are others, and are laid out with the next drawing.
  changed() {}

  layout() {
    const { rows } = this.viewer;
    if (this.rows === rows) return;
    this.rows = rows;
    const roots = [];
    const above = [];
    for (const row of rows) {
      const node = { row, children: [] };
      above.length = row.level - 1;
      (above.at(-1)?.children ?? roots).push(node);
      above[row.level - 1] = node;
    }
    if (!roots.length || rows.length > MOST) {
      this.nodes = [];
      this.needs = []; // [[the box of a task, the box of one that needed it], ...]
      return;
    }
    const root = tree().nodeSize([HIGH + GAP_Y, WIDE + GAP_X])
      .separation((one, other) => (one.parent === other.parent ? 1 : 1.3))(hierarchy(roots[0]));
    // The layout grows downwards; ours grows to the right, where text has space.
    this.nodes = root.descendants().map((node) => ({ node, x: node.y, y: node.x, row: node.data.row }));
    this.nodes.forEach((it) => { it.node.drawn = it; });
    const { model } = this.viewer;
    const boxes = new Map(this.nodes.map((it) => [it.row.key, it]));
    this.needs = this.nodes.filter((it) => it.row.kind === 'task').flatMap((it) => model.needs[it.row.number]
      .filter((need) => boxes.has(need)).map((need) => [boxes.get(need), it]));
  }

  fit(width, height) {
    const least = (of) => this.nodes.reduce((it, node) => Math.min(it, of(node)), Infinity);
    const [left, right] = [least((node) => node.x) - 20, WIDE + 20 - least((node) => -node.x)];
    const [top, bottom] = [least((node) => node.y) - HIGH, HIGH - least((node) => -node.y)];
    const whole = Math.min(1, width / (right - left), height / (bottom - top));
    const zoom = Math.max(whole, SMALLEST);
    const root = this.nodes[0];
    const y = whole < SMALLEST ? height / 2 - root.y * zoom : (height - (top + bottom) * zoom) / 2;
    this.place = { x: whole < SMALLEST ? -left * zoom : (width - (left + right) * zoom) / 2, y, zoom };
  }

  draw() {
    const { viewer } = this;
    const before = this.rows;
    this.layout();
    const tools = drawingContext(this.canvas);
    if (!tools) return;
    const { context, width, height } = tools;
    setNote(this.note, this.words(), this.nodes.length ? 'drag moves, wheel zooms, double click opens and folds' : '');
    if (!this.nodes.length) return;
    if (!this.place || before === null || (before !== this.rows && this.viewer.live && !this.isMoved)) this.fit(width, height);
    const colours = palette();
    const { x, y, zoom } = this.place;
    context.translate(x, y);
    context.scale(zoom, zoom);
    const isSeen = (node) => node.x * zoom + x < width && (node.x + WIDE) * zoom + x > 0
      && (node.y - HIGH) * zoom + y < height && (node.y + HIGH) * zoom + y > 0;
    for (const node of this.nodes) {
      const parent = node.node.parent?.drawn;
      if (parent && (isSeen(node) || isSeen(parent))) this.line(context, colours, parent, node);
    }
    for (const [need, node] of this.needs) if (isSeen(need) || isSeen(node)) this.arrow(context, colours, need, node);
    for (const node of this.nodes) if (isSeen(node)) this.box(context, colours, node);
  }

  // From a task to one that needed it: beside their boxes, where no line of the tree is.
  arrow(context, colours, need, node) {
    const side = Math.max(need.x, node.x) + WIDE + 26;
    const [begin, end] = [need.x + WIDE, node.x + WIDE];
    context.strokeStyle = context.fillStyle = colours.accent;
    context.lineWidth = 1.4;
    context.beginPath();
    context.moveTo(begin, need.y);
    context.bezierCurveTo(side, need.y, side, node.y, end + 7, node.y);
    context.stroke();
    context.beginPath();
    context.moveTo(end, node.y);
    context.lineTo(end + 8, node.y - 4);
    context.lineTo(end + 8, node.y + 4);
    context.fill();
  }

  words() {
    const all = count(this.viewer.model.size);
    if (this.nodes.length) {
      return `${count(this.nodes.length)} boxes for ${all} agents: as folded in the tree${this.needs.length ? ' · arrows lead to who needed it' : ''}`;
    }
    if (!this.rows.length) return 'Nothing is found.';
    return `${count(this.rows.length)} rows are too many for a graph, which takes ${count(MOST)}: fold the tree (s is smart fold) or search.`;
  }

  line(context, colours, parent, node) {
    const { model, critical } = this.viewer;
    const isDetached = node.row.kind === 'task' && model.shownMode(node.row.number) === 'detached';
    const isCritical = node.row.kind === 'task' && critical.has(node.row.number);
    context.strokeStyle = isCritical ? colours.ink : colours.line;
    context.lineWidth = isCritical ? 2 : 1.2;
    context.setLineDash(isDetached ? [5, 4] : []);
    const [from, to] = [parent.x + WIDE, node.x];
    const middle = (from + to) / 2;
    context.beginPath();
    context.moveTo(from, parent.y);
    context.bezierCurveTo(middle, parent.y, middle, node.y, to, node.y);
    context.stroke();
    context.setLineDash([]);
  }

  box(context, colours, { x, y, row }) {
    const { viewer } = this;
    const isTask = row.kind === 'task';
    const group = isTask ? viewer.rollups.own[row.number] : 'done';
    context.fillStyle = colours.card;
    context.strokeStyle = row.key === viewer.active ? colours.accent : colours.line;
    context.lineWidth = row.key === viewer.active ? 3 : 1;
    context.beginPath();
    context.roundRect(x, y - HIGH / 2, WIDE, HIGH, 6);
    context.fill();
    context.stroke();
    context.fillStyle = isTask ? colours[`bar-${group}`] : colours.line;
    context.beginPath();
    context.roundRect(x, y - HIGH / 2, 5, HIGH, [6, 0, 0, 6]);
    context.fill();
    const [first, second] = isTask ? this.ofTask(row) : this.ofMany(row);
    context.font = `600 ${FONT}`;
    context.fillStyle = isTask ? colours[`text-${group}`] : colours.ink;
    const glyph = isTask ? describe(viewer.model.status[row.number]).glyph : '≡';
    context.fillText(glyph, x + 12, y - 8);
    context.font = FONT;
    context.fillStyle = colours.ink;
    context.fillText(fitted(context, first, WIDE - 50), x + 28, y - 8);
    context.fillStyle = colours.quiet;
    context.font = FONT.replace('12px', '11px');
    context.fillText(fitted(context, second, WIDE - 50), x + 28, y + 9);
    if (row.canExpand && !row.isExpanded) {
      context.fillStyle = colours.quiet;
      context.fillText('▸', x + WIDE - 16, y);
    }
  }

  ofTask({ number, canExpand, isExpanded }) {
    const { model, rollups } = this.viewer;
    const failed = rollups.below(number, 'failed');
    const hidden = canExpand && !isExpanded
      ? `${count(rollups.tasks[number] - 1)}↓ ${failed ? `✗${count(failed)} ` : ''}· ` : '';
    return [`${model.agent[number]}: ${oneLine(model.name(number), 60)}`,
      `${hidden}${tokens(model.tokens(number), model.ofTotal(number, ESTIMATED))} · ${money(model.ofTotal(number, COST), model.unknownTotal(number))} · ${duration(model.seconds(number)) || 'queued'}`];
  }

  ofMany({ members, agent, kind }) {
    const { model, rollups } = this.viewer;
    const sum = (of) => members.reduce((total, member) => total + of(member), 0);
    const failed = sum((member) => rollups.groups.failed[member]);
    const all = sum((member) => rollups.tasks[member]);
    return [kind === 'more' ? `… ${count(members.length)} more ${agent}` : `${agent} ×${count(members.length)}`,
      `${count(all)} agents${failed ? ` ✗${count(failed)}` : ''} · ${tokens(sum((it) => model.tokens(it)), sum((it) => model.ofTotal(it, ESTIMATED)))} · ${money(sum((it) => model.ofTotal(it, COST)), sum((it) => model.unknownTotal(it)))}`];
  }

  at(event) {
    if (!this.place) return null;
    const x = (event.offsetX - this.place.x) / this.place.zoom;
    const y = (event.offsetY - this.place.y) / this.place.zoom;
    return this.nodes.find((node) => x >= node.x && x <= node.x + WIDE
      && Math.abs(y - node.y) <= HIGH / 2)?.row ?? null;
  }
}
