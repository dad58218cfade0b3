// The run packed by time: tasks as bars below who asked for them, down to a depth that fits; what
// is deeper is shown as density, and counted. Where no depth fits there are bands, one for each agent.

import { drawAxis } from './time_bars.js';
import { FONT, element, fitted, palette, drawingContext, setNote } from './dom.js';
import { Bands } from './flame_bands.js';
import { count, oneLine } from './format.js';
import { describe } from './status.js';

const LINE = 16;
const MOST_BARS = 600;
const SHARES = 64; // how finely density is shaded

export class Flame {
  constructor(viewer) {
    this.viewer = viewer;
    this.axis = element('canvas', { class: 'axis', role: 'img', 'aria-label': 'Time axis' });
    this.canvas = element('canvas', {
      class: 'drawing', role: 'img',
      'aria-label': 'Agents packed by time; the tab "Tree + time" says the same in words',
    });
    this.spacer = element('div', { class: 'spacer' });
    this.scroller = element('div', { class: 'scroller', tabindex: 0, 'aria-label': 'Flame', role: 'group' },
      this.canvas, this.spacer);
    this.note = element('p', { class: 'note' });
    this.element = element('div', { class: 'flame' }, element('div', { class: 'axis-line' }, this.axis),
      this.scroller, this.note);
    this.depth = null; // chosen with the first drawing
    this.isChosen = false; // by the reader
    this.changed();
    this.scroller.addEventListener('scroll', () => viewer.draw());
    this.canvas.addEventListener('click', (event) => {
      const number = this.at(event);
      if (number !== null) viewer.reveal(number, { quietly: true });
    });
    this.canvas.addEventListener('dblclick', (event) => {
      const number = this.at(event);
      if (number !== null) viewer.zoomTo(number);
    });
    this.canvas.addEventListener('mousemove', (event) => {
      const number = this.at(event);
      this.canvas.title = number === null ? '' : this.title(number);
    });
    this.canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      viewer.zoomAround(this.scale.time(event.offsetX), event.deltaY > 0 ? 1.25 : 0.8);
    }, { passive: false });
  }

  title(number) {
    const { model } = this.viewer;
    return `${model.agent[number]}: ${oneLine(model.name(number), 80)} (${describe(model.status[number]).word})`;
  }

  changed() {
    this.most = this.viewer.model.depth.reduce((most, depth) => Math.max(most, depth), 0);
    this.bands = null;
    this.forget();
  }

  // Lay out anew, and as deep as fits, what is to be seen now.
  forget() {
    this.window = this.viewer.window;
    this.layouts = new Map();
    if (!this.isChosen) this.depth = null;
  }

  // Whether some of a subtree is in the visible part of the time.
  isSeen(number) {
    const { first, final } = this.viewer.rollups;
    if (!this.window) return first[number] < Infinity;
    return first[number] <= this.window[1] && final[number] >= this.window[0];
  }

  get isBanded() {
    return this.depth === 0 && this.most > 0;
  }

  deeper(by) {
    this.isChosen = true;
    this.depth = Math.min(this.most, Math.max(0, this.depth + by));
    this.viewer.draw();
  }

  // Return where each bar is: {bars: [{number, line}], density: [{number, line}], lines}.
  layout(depth) {
    if (this.layouts.has(depth)) return this.layouts.get(depth);
    const { model, rollups } = this.viewer;
    const blocks = new Map(); // a task to the lines of it and all below it: [{number, line}]
    const shown = [];
    for (let number = 0; number < model.size; number += 1) {
      if (model.depth[number] <= depth && this.isSeen(number)) shown.push(number);
    }
    for (const number of shown.toReversed()) {
      const bars = [{ number, line: 0 }];
      const isLast = model.depth[number] === depth && rollups.tasks[number] > 1;
      if (isLast) bars.push({ number, line: 1, dense: true });
      const ends = [];
      let lines = isLast ? 2 : 1;
      if (!isLast) {
        const children = model.children[number].filter((child) => blocks.has(child))
          .sort((one, other) => rollups.first[one] - rollups.first[other]);
        for (const child of children) {
          const block = blocks.get(child);
          const line = freeLine(ends, block.lines, rollups.first[child]);
          for (let at = 0; at < block.lines; at += 1) ends[line + at] = rollups.final[child];
          for (const bar of block.bars) bars.push({ ...bar, line: bar.line + line + 1 });
          blocks.delete(child);
        }
        lines = 1 + ends.length;
      }
      blocks.set(number, { bars, lines });
    }
    const layout = blocks.get(0) ?? { bars: [], lines: 0 };
    this.layouts.set(depth, layout);
    return layout;
  }

  // As deep as can be read: so many bars, and not much more than the screen is high.
  choose() {
    const { model } = this.viewer;
    const perDepth = new Array(this.most + 1).fill(0);
    model.depth.forEach((depth, number) => { perDepth[depth] += this.isSeen(number) ? 1 : 0; });
    const lines = Math.max(10, (this.scroller.clientHeight || 600) / LINE);
    let [depth, bars] = [0, perDepth[0]];
    while (depth < this.most) {
      bars += perDepth[depth + 1];
      if (bars > MOST_BARS || this.layout(depth + 1).lines > 1.2 * lines) break;
      depth += 1;
    }
    this.depth = depth;
  }

  draw() {
    const { viewer, scroller } = this;
    const { model } = viewer;
    if (!scroller.clientHeight) return;
    if (this.window !== viewer.window) this.forget();
    if (this.depth === null) this.choose();
    if (this.isBanded) this.bands ??= new Bands(viewer);
    const layout = this.isBanded ? null : this.layout(this.depth);
    this.spacer.style.height = `${layout ? layout.lines * LINE + 8 : this.bands.height}px`;
    const tools = drawingContext(this.canvas);
    if (!tools) return;
    const { context, width, height } = tools;
    const colours = palette();
    this.scale = viewer.scaleFor(width);
    drawAxis(this.axis, this.scale, model.start);
    context.fillStyle = colours.hairline;
    for (const [at] of this.scale.ticks(model.start)) {
      context.fillRect(Math.round(this.scale.x(at)), 0, 1, height);
    }
    context.font = FONT.replace('12px', '11px');
    this.drawn = [];
    if (this.isBanded) {
      this.bands.draw(context, colours, this.scale, width, height, scroller.scrollTop);
      setNote(this.note, this.bands.words, '+ shows single agents · Ctrl+wheel zooms time');
      return;
    }
    for (const bar of layout.bars) {
      const top = bar.line * LINE - scroller.scrollTop + 4;
      if (top < -LINE || top > height) continue;
      if (bar.dense) this.density(context, colours, bar.number, top);
      else this.bar(context, colours, bar.number, top);
    }
    let [bars, deeper] = [0, 0];
    model.depth.forEach((depth, number) => {
      if (!this.isSeen(number)) return;
      if (depth > this.depth) deeper += 1;
      else bars += 1;
    });
    const all = this.window ? 'the agents of this time' : 'agents';
    const lines = count(layout.lines);
    if (deeper) {
      setNote(this.note, `depth ≤ ${this.depth} of ${this.most}: ${count(bars)} bars in ${lines} lines, ${count(deeper)} deeper agents shown as density`,
        '+ and − change the depth · Ctrl+wheel zooms time');
    } else setNote(this.note, `all ${count(bars)} ${all} in ${lines} lines`, '− shows less depth · Ctrl+wheel zooms time');
  }

  bar(context, colours, number, top) {
    const { model, rollups, selected, critical } = this.viewer;
    const from = model.started[number];
    if (from === null) return;
    const { scale } = this;
    const until = model.until(number);
    if (until < scale.from || from > scale.to) return;
    const x = Math.max(scale.x(from), 0);
    const wide = Math.max(1.5, Math.min(scale.x(until), 2 * scale.left + scale.width) - x);
    context.fillStyle = colours[`bar-${rollups.own[number]}`];
    context.fillRect(x, top, Math.max(wide - 1, 1), LINE - 2);
    if (critical.has(number)) {
      context.fillStyle = colours.ink;
      context.fillRect(x, top, Math.max(wide - 1, 1), 1.5);
    }
    if (model.shownMode(number) === 'detached') {
      context.strokeStyle = colours.ink;
      context.setLineDash([3, 2]);
      context.strokeRect(x + 0.5, top + 0.5, Math.max(wide - 2, 1), LINE - 3);
      context.setLineDash([]);
    }
    if (number === selected) {
      context.strokeStyle = colours.accent;
      context.lineWidth = 2;
      context.strokeRect(x, top, Math.max(wide - 1, 2), LINE - 2);
      context.lineWidth = 1;
    }
    const words = `${describe(model.status[number]).glyph} ${model.agent[number]}: ${oneLine(model.name(number), 80)}`;
    const text = fitted(context, words, wide - 8);
    if (text) {
      context.fillStyle = colours[`on-${rollups.own[number]}`];
      context.fillText(text, x + 4, top + LINE / 2 - 0.5);
    }
    this.drawn.push([x, top, wide, number]);
  }

  // How many of those below work at a time, in shades; red where one failed.
  density(context, colours, number, top) {
    const { treeOrder, rollups } = this.viewer;
    const { scale } = this;
    const from = Math.max(0, Math.floor(scale.x(rollups.first[number])));
    const to = Math.min(Math.ceil(scale.x(rollups.final[number])), scale.left + scale.width);
    if (to <= from) return;
    const bins = this.bins(number, from, to);
    let [sum, most] = [0, 1];
    for (const change of bins) most = Math.max(most, (sum += change));
    sum = 0;
    context.fillStyle = colours['bar-done'];
    bins.forEach((change, place) => {
      sum += change;
      if (!sum) return;
      context.globalAlpha = 0.3 + 0.6 * (Math.ceil((sum / most) * SHARES) / SHARES);
      context.fillRect(from + place, top, 1, LINE - 3);
    });
    context.globalAlpha = 1;
    context.fillStyle = colours['bar-failed'];
    let last = -10;
    for (const at of treeOrder.failuresBelow(number).sort((one, other) => one - other)) {
      const x = Math.round(scale.x(at));
      if (x - last < 2 || x < from || x > to) continue;
      context.fillRect(x, top, 1.5, LINE - 3);
      last = x;
    }
    this.drawn.push([from, top, to - from, number]);
  }

  bins(number, from, to) {
    const { model, treeOrder, rollups } = this.viewer;
    const bins = new Int32Array(to - from + 2);
    const clamp = (x) => Math.min(Math.max(Math.floor(x) - from, 0), bins.length - 1);
    for (const below of treeOrder.below(number)) {
      if (model.started[below] === null || rollups.tasks[below] > 1) continue;
      const begin = clamp(this.scale.x(model.started[below]));
      bins[begin] += 1;
      bins[Math.max(clamp(this.scale.x(model.until(below))), begin + 1)] -= 1;
    }
    return bins;
  }

  at(event) {
    if (this.isBanded) return this.bands?.at(event.offsetY + this.scroller.scrollTop - 4, this.scale.time(event.offsetX)) ?? null;
    for (const [x, top, wide, number] of this.drawn ?? []) {
      if (event.offsetX >= x && event.offsetX <= x + wide && event.offsetY >= top
        && event.offsetY < top + LINE) return number;
    }
    return null;
  }
}

// The first line from which on so many are free.
function freeLine(ends, lines, from) {
  for (let line = 0; ; line += 1) {
    let at = 0;
    while (at < lines && !(ends[line + at] > from)) at += 1;
    if (at === lines) return line;
    line += at;
  }
}
