// From time to pixels and back. A long idle time is shown short, and marked.

const IDLE_SHARE = 0.3; // of the axis: what is longer is cut
const CUT_SHARE = 0.03; // of the axis: what is left of it

// The idle times that are long enough to cut: [[from, to], ...].
export function idleTimes(model) {
  const busy = model.turns.map(([from, to]) => [from, to ?? model.last]);
  for (let number = 1; number < model.size; number += 1) {
    if (model.started[number] !== null) {
      busy.push([model.started[number], model.until(number)]);
    }
  }
  busy.sort((one, other) => one[0] - other[0]);
  const least = IDLE_SHARE * (model.last - model.start);
  const idle = [];
  let until = model.start;
  for (const [from, to] of busy) {
    if (from - until > least) idle.push([until, from]);
    if (to > until) until = to;
  }
  return idle;
}

export class Scale {
  constructor(from, to, idle, left, width) {
    this.from = from;
    this.to = Math.max(to, from + 1e-3);
    this.left = left;
    this.width = width;
    this.cuts = idle.filter(([begin, end]) => begin >= this.from && end <= this.to);
    const cut = this.cuts.reduce((sum, [begin, end]) => sum + end - begin, 0);
    const share = 1 - CUT_SHARE * this.cuts.length;
    this.perSecond = (width * share) / (this.to - this.from - cut);
    this.cutWidth = width * CUT_SHARE;
  }

  x(at) {
    let x = this.left + (at - this.from) * this.perSecond;
    for (const [begin, end] of this.cuts) {
      if (at <= begin) break;
      const inside = Math.min(at, end) - begin;
      x += (inside / (end - begin)) * this.cutWidth - inside * this.perSecond;
    }
    return x;
  }

  time(x) {
    let at = this.from + (x - this.left) / this.perSecond;
    for (const [begin, end] of this.cuts) {
      if (at <= begin) break;
      const over = x - this.x(begin);
      if (over < this.cutWidth) return begin + (over / this.cutWidth) * (end - begin);
      at = end + (over - this.cutWidth) / this.perSecond;
    }
    return at;
  }

  // Round moments, some 110 pixels apart: [[time, step], ...].
  ticks(origin) {
    const rough = 110 / this.perSecond;
    const step = STEPS.find((it) => it >= rough) ?? Math.ceil(rough / 86400) * 86400;
    const ticks = [];
    const first = Math.ceil((this.from - origin) / step - 1e-9) * step;
    for (let since = first; origin + since <= this.to && ticks.length < 200; since += step) {
      const at = origin + since;
      const hidden = this.cuts.some(([begin, end]) => at > begin && at < end);
      if (!hidden) ticks.push([at, step]);
    }
    return ticks;
  }
}

const STEPS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  10800, 21600, 43200, 86400,
];
