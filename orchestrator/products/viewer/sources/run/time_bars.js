// Time bars in the rows of the tree. A collapsed row draws what it hides: failures as ticks, and
// for a group how many of its tasks work at a time.

import { FONT, palette, drawingContext } from './dom.js';
import { duration, instant } from './format.js';

export const ROW = 24;
const APART = 4; // pixels between two labels of an axis

// The depth-first order of the tasks, in which a subtree is one range.
export class TreeOrder {
  constructor(model, rollups) {
    this.model = model;
    this.place = new Int32Array(model.size);
    // Parents come before their children: each takes its place, and gives the next ones to its children.
    const next = new Int32Array(model.size);
    for (let number = 0; number < model.size; number += 1) {
      const parent = model.parent[number];
      this.place[number] = parent < 0 ? 0 : next[parent];
      if (parent >= 0) next[parent] += rollups.tasks[number];
      next[number] = this.place[number] + 1;
    }
    this.rollups = rollups;
    this.order = new Int32Array(model.size);
    this.place.forEach((place, number) => { this.order[place] = number; });
    this.failed = [];
    for (let number = 0; number < model.size; number += 1) {
      if (rollups.own[number] === 'failed') this.failed.push(number);
    }
    this.failed.sort((one, other) => this.place[one] - this.place[other]);
  }

  // The descendants of a task, as a range of the order.
  below(number) {
    const first = this.place[number] + 1;
    return this.order.subarray(first, first + this.rollups.tasks[number] - 1);
  }

  // The times at which descendants of a task failed.
  failuresBelow(number) {
    const [first, last] = [this.place[number] + 1, this.place[number] + this.rollups.tasks[number]];
    let [low, high] = [0, this.failed.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.place[this.failed[middle]] < first) low = middle + 1;
      else high = middle;
    }
    const times = [];
    for (; low < this.failed.length && this.place[this.failed[low]] < last; low += 1) {
      times.push(this.model.until(this.failed[low]));
    }
    return times;
  }
}

export function drawAxis(canvas, scale, origin) {
  const tools = drawingContext(canvas);
  if (!tools) return;
  const { context, width, height } = tools;
  const colours = palette();
  context.font = FONT;
  context.fillStyle = colours.quiet;
  const measure = (text) => context.measureText(text).width;
  for (const [text, x] of labels(scale, origin, width, measure)) context.fillText(text, x, height / 2);
  for (const [at] of scale.ticks(origin)) context.fillRect(Math.round(scale.x(at)), height - 6, 1, 6);
}

// The labels of an axis that do not overlap: [[text, from, to], ...].
export function labels(scale, origin, width, measure) {
  const placed = [];
  const place = (text, from) => {
    const to = from + measure(text);
    const isFree = placed.every(([, begin, end]) => to + APART <= begin || end + APART <= from);
    if (isFree && to < width) placed.push([text, from, to]);
  };
  // What was cut out first: nothing else tells of it.
  for (const [begin, end] of scale.cuts) {
    const text = `⋯ ${duration(end - begin)}`;
    const middle = scale.x(begin) + (scale.cutWidth - measure(text)) / 2;
    place(text, Math.max(0, Math.min(middle, width - measure(text) - 1)));
  }
  for (const [at, step] of scale.ticks(origin)) place(instant(at - origin, step), Math.round(scale.x(at)) + 4);
  return placed;
}

export class Bars {
  constructor(canvas, model, rollups, treeOrder, critical) {
    Object.assign(this, { canvas, model, rollups, treeOrder, critical });
  }

  // Draw the rows from `first` on; `offset` is how far the first one is scrolled out.
  draw(rows, first, offset, scale) {
    const tools = drawingContext(this.canvas);
    if (!tools) return;
    Object.assign(this, tools);
    this.colours = palette();
    this.scale = scale;
    this.context.font = FONT;
    this.grid();
    const seen = Math.ceil(this.height / ROW) + 1;
    rows.slice(first, first + seen).forEach((row, place) => {
      const top = place * ROW - offset;
      if (row.kind === 'task') this.task(row, top);
      else this.group(row, top);
    });
  }

  grid() {
    const { context, colours, scale, height } = this;
    context.fillStyle = colours.hairline;
    for (const [at] of scale.ticks(this.model.start)) {
      context.fillRect(Math.round(scale.x(at)), 0, 1, height);
    }
    for (const [begin] of scale.cuts) {
      const x = scale.x(begin) + scale.cutWidth / 2;
      context.strokeStyle = colours.quiet;
      context.setLineDash([2, 3]);
      context.strokeRect(x, -1, 0, height + 2);
      context.setLineDash([]);
    }
  }

  // Where the bar of a task is, as far as it can be seen: {x, width}, or null.
  span(from, to, scale = this.scale) {
    if (to < scale.from || from > scale.to) return null;
    const x = Math.max(scale.x(from), -2);
    // A bar that goes beyond the visible time goes to the edge.
    const end = Math.min(scale.x(to), 2 * scale.left + scale.width + 2);
    return { x, width: Math.max(end - x, 2) };
  }

  task(row, top) {
    const { context, colours, model, rollups } = this;
    const { number } = row;
    const started = model.started[number];
    if (started === null) return this.queued(number, top);
    const collapsed = row.canExpand && !row.isExpanded;
    const high = collapsed ? 10 : 14;
    const y = top + (collapsed ? 4 : 5);
    const span = this.span(started, model.until(number));
    if (collapsed) this.hidden(number, top + 15);
    if (!span) return null;
    this.fillSpan(number, span, y, high);
    this.providerWaits(number, y, high);
    if (this.critical.has(number)) {
      context.fillStyle = colours.ink;
      context.fillRect(span.x, y - 3, span.width, 2);
    }
    if (model.shownMode(number) === 'detached') {
      context.strokeStyle = colours.ink;
      context.setLineDash([3, 2]);
      context.strokeRect(span.x + 0.5, y + 0.5, span.width - 1, high - 1);
      context.setLineDash([]);
    }
    const end = collapsed && rollups.final[number] > -Infinity
      ? Math.max(span.x + span.width, this.scale.x(rollups.final[number])) : span.x + span.width;
    this.note(duration(model.seconds(number)), Math.min(span.x, end), end, top + ROW / 2);
    return null;
  }

  fillSpan(number, span, y, high) {
    const { context, colours, model, rollups } = this;
    const colour = colours[`bar-${rollups.own[number]}`];
    context.fillStyle = colour;
    if (number === 0 && model.turns.length > 1) {
      // A session works in its turns, and is there in between.
      context.globalAlpha = 0.3;
      context.fillRect(span.x, y, span.width, high);
      context.globalAlpha = 1;
      for (const [from, to] of model.turns) {
        const turn = this.span(from, to ?? model.last);
        if (turn) context.fillRect(turn.x, y, turn.width, high);
      }
      return;
    }
    context.fillRect(span.x, y, span.width, high);
  }

  // The parts in which a model call waited for its provider.
  providerWaits(number, y, high) {
    this.context.fillStyle = this.colours['bar-queued'];
    for (const [from, to] of this.model.waits.get(number) ?? []) {
      const part = this.span(from, to);
      if (part) this.context.fillRect(part.x, y, part.width, high);
    }
  }

  queued(number, top) {
    const { context, colours, model } = this;
    const span = this.span(model.requested[number], model.until(number));
    if (!span) return null;
    context.fillStyle = colours['bar-queued'];
    context.fillRect(span.x, top + ROW / 2 - 1, span.width, 2);
    return null;
  }

  // What a collapsed row hides: its duration, and where a task failed.
  hidden(number, y) {
    const { context, colours, rollups } = this;
    const span = this.span(rollups.first[number], rollups.final[number]);
    if (span) {
      context.fillStyle = colours.track;
      context.fillRect(span.x, y, span.width, 5);
    }
    this.ticks(this.treeOrder.failuresBelow(number), y, 5);
  }

  ticks(times, y, high) {
    const { context, colours, scale } = this;
    context.fillStyle = colours['bar-failed'];
    let last = -10;
    for (const at of times.sort((one, other) => one - other)) {
      const x = Math.round(scale.x(at));
      if (x - last < 2 || x < 0 || x > this.width) continue;
      context.fillRect(x - 1, y, 2, high);
      last = x;
    }
  }

  group(row, top) {
    const { context, colours, model, rollups, scale, width } = this;
    const bins = new Int32Array(Math.ceil(width) + 2);
    const clamp = (x) => Math.min(Math.max(Math.floor(x), 0), bins.length - 1);
    let [first, last, active] = [Infinity, -Infinity, false];
    const failures = [];
    for (const member of row.members) {
      if (model.started[member] === null) continue;
      const [from, to] = [model.started[member], model.until(member)];
      first = Math.min(first, from);
      last = Math.max(last, to);
      active ||= model.ended[member] === null;
      if (rollups.own[member] === 'failed') failures.push(to);
      if (!row.isExpanded) for (const at of this.treeOrder.failuresBelow(member)) failures.push(at);
      if (to < scale.from || from > scale.to) continue;
      const begin = clamp(scale.x(from));
      bins[begin] += 1;
      bins[Math.max(clamp(scale.x(to)), Math.min(begin + 1, bins.length - 1))] -= 1;
    }
    if (last < first) return;
    let [sum, most] = [0, 1];
    for (const change of bins) most = Math.max(most, (sum += change));
    context.fillStyle = colours[active ? 'bar-running' : 'bar-done'];
    sum = 0;
    bins.forEach((change, x) => {
      sum += change;
      if (!sum) return;
      const high = Math.max(1.5, (sum / most) * 15);
      context.fillRect(x, top + 21 - high, 1, high);
    });
    this.ticks(failures, top + 1, 4);
    this.note(duration(last - first), scale.x(first), scale.x(last), top + ROW / 2);
  }

  note(text, from, to, y) {
    const { context, colours, width } = this;
    const wide = context.measureText(text).width;
    context.fillStyle = colours.quiet;
    if (to + 6 + wide < width - 2) context.fillText(text, Math.max(to, 0) + 6, y);
    else if (from - 6 - wide > 0) context.fillText(text, from - 6 - wide, y);
  }
}
