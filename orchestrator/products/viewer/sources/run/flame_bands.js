// The flame of a run that is too wide for bars: one band for all tasks that are reached by the same
// agents, as high as many of them work at a time. The deepest bands count all below them, too.

import { fitted } from './dom.js';
import { count, oneLine } from './format.js';

export const BAND = 46; // pixels
const MOST = 80; // bands: of deeper agents there are too many to read
const TEXT = 15; // pixels, for the name of a band

export class Bands {
  constructor(viewer) {
    this.viewer = viewer;
    this.bands = merged(viewer.model, viewer.rollups);
    // Down to the depth at which they can be read.
    let deepest = 0;
    const upTo = (depth) => this.bands.reduce((sum, band) => sum + (band.depth <= depth ? 1 : 0), 0);
    const most = this.bands.reduce((deep, band) => Math.max(deep, band.depth), 0);
    while (deepest < most && upTo(deepest + 1) <= MOST) deepest += 1;
    this.deepest = deepest;
    this.shown = this.bands.filter((band) => band.depth <= deepest);
    for (const band of this.shown) if (band.depth === deepest) absorb(band, band.below);
  }

  get height() {
    return this.shown.length * BAND;
  }

  get words() {
    return `${count(this.viewer.model.size)} agents in ${count(this.shown.length)} bands, one for each chain of agents: as high as many work at a time`;
  }

  draw(context, colours, scale, width, height, scrolled) {
    this.shown.forEach((band, at) => {
      const top = at * BAND - scrolled + 4;
      if (top > -BAND && top < height) this.band(context, colours, scale, width, band, top);
    });
  }

  band(context, colours, scale, width, band, top) {
    const { model } = this.viewer;
    const [ground, high] = [top + BAND - 6, BAND - 8 - TEXT];
    const bins = this.bins(band, scale, width);
    const peak = bins.reduce((most, it) => Math.max(most, it), 0);
    context.fillStyle = colours['bar-done'];
    bins.forEach((working, x) => {
      if (!working) return;
      const tall = Math.max(1, (working / peak) * high);
      context.fillRect(x, ground - tall, 1, tall);
    });
    context.fillStyle = colours['bar-failed'];
    for (const number of band.failed) {
      const x = scale.x(model.until(number));
      if (x >= 0 && x <= width) context.fillRect(Math.round(x), ground, 1.5, 4);
    }
    context.fillStyle = colours.ink;
    const failed = band.failed.length ? ` ✗${count(band.failed.length)}` : '';
    const own = band.own ?? band.tasks.length;
    const below = band.tasks.length > own ? ` and ${count(band.tasks.length - own)} below` : '';
    const many = band.tasks.length > 1 ? ` ×${count(own)}${below}, at most ${count(peak)} at once` : '';
    const name = `${'› '.repeat(band.depth)}${oneLine(model.agent[band.tasks[0]], 40)}${many}${failed}`;
    context.fillText(fitted(context, name, width - 12), 4, top + TEXT / 2);
    context.fillStyle = colours.hairline;
    context.fillRect(0, ground + 4, width, 1);
  }

  // How many tasks of a band work at each pixel.
  bins(band, scale, width) {
    const { model } = this.viewer;
    const changes = new Int32Array(Math.ceil(width) + 2);
    const clamp = (x) => Math.min(Math.max(Math.floor(x), 0), changes.length - 1);
    for (const number of band.tasks) {
      const [from, to] = [model.started[number], model.until(number)];
      if (from === null || to < scale.from || from > scale.to) continue;
      const begin = clamp(scale.x(from));
      changes[begin] += 1;
      changes[Math.max(clamp(scale.x(to)), begin + 1)] -= 1;
    }
    let sum = 0;
    return changes.map((change) => (sum += change));
  }

  // A task of the band at a height that works at a time: one that failed, where there is one.
  at(y, time) {
    const band = this.shown[Math.floor(y / BAND)];
    if (!band) return null;
    const { model } = this.viewer;
    const works = (number) => model.started[number] !== null && model.started[number] <= time && model.until(number) >= time;
    return band.failed.find(works) ?? band.tasks.find(works) ?? null;
  }
}

// Let a band count the tasks of all bands below it.
function absorb(band, below) {
  band.own ??= band.tasks.length;
  for (const deeper of below.values()) {
    for (const number of deeper.tasks) band.tasks.push(number);
    for (const number of deeper.failed) band.failed.push(number);
    absorb(band, deeper.below);
  }
}

// [{depth, tasks, failed}, ...]: tasks with the same agents above them, each band before those below it.
function merged(model, rollups) {
  const root = { depth: 0, tasks: [], failed: [], below: new Map() };
  const bandOf = new Array(model.size);
  for (let number = 0; number < model.size; number += 1) {
    let band = root;
    if (number) {
      const { below, depth } = bandOf[model.parent[number]];
      const agent = model.agent[number];
      band = below.get(agent);
      if (!band) below.set(agent, band = { depth: depth + 1, tasks: [], failed: [], below: new Map() });
    }
    bandOf[number] = band;
    band.tasks.push(number);
    if (rollups.own[number] === 'failed') band.failed.push(number);
  }
  const bands = [];
  const visit = (band) => {
    bands.push(band);
    band.below.forEach(visit);
  };
  visit(root);
  return bands;
}
