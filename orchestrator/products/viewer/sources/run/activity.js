// How many tasks work at a time, over the whole run. A task that waits for a child does not.

import { palette, drawingContext } from './dom.js';

// The times at which a task begins to work, and at which one stops, each sorted.
// As `delegation/tree/intervals.py` has it; tests compare the peaks.
export function workChanges(model) {
  const [begins, ends] = [[], []];
  const work = (from, to) => {
    begins.push(from);
    ends.push(to);
  };
  for (let number = 0; number < model.size; number += 1) {
    const gaps = model.children[number].length ? waits(model, number) : [];
    for (const [begin, end] of stretches(model, number)) {
      let at = begin;
      for (const [from, to] of gaps) {
        if (from >= end) break;
        if (to <= at) continue;
        if (from > at) work(at, from);
        at = to;
      }
      if (at < end) work(at, end);
    }
  }
  return { begins: Float64Array.from(begins).sort(), ends: Float64Array.from(ends).sort() };
}

// Call `visit` with each time at which the number of working tasks changes, and that number.
function eachChange({ begins, ends }, visit) {
  let [began, ended] = [0, 0];
  while (ended < ends.length) {
    const at = began < begins.length ? Math.min(begins[began], ends[ended]) : ends[ended];
    while (ends[ended] === at) ended += 1;
    while (begins[began] === at) began += 1;
    visit(at, began - ended);
  }
}

// When a task ran: once, or in each turn of a session.
function stretches(model, number) {
  if (model.parent[number] < 0) return model.turns.map(([from, to]) => [from, to ?? model.last]);
  const started = model.started[number];
  return started === null ? [] : [[started, model.until(number)]];
}

// When a task waited for others: for joined children from the first request until the last has settled.
function waits(model, number) {
  const merged = [];
  const found = model.children[number]
    .filter((child) => model.mode[child] === 'joined' && !model.isStoppedByParent(child))
    .map((child) => [model.requested[child], model.until(child)]);
  if (number === 0 && model.awaited.length) {
    for (const [since, id] of model.awaited) found.push([since, model.until(model.numbers.get(id))]);
    found.sort(([begin, end], [other, otherEnd]) => begin - other || end - otherEnd);
  }
  for (const [begin, end] of found) {
    const last = merged.at(-1);
    if (last && begin < last[1]) last[1] = Math.max(last[1], end);
    else merged.push([begin, end]);
  }
  return merged;
}

export function peakOf(changes) {
  let most = 0;
  eachChange(changes, (_, level) => {
    most = Math.max(most, level);
  });
  return most;
}

export function drawStrip(canvas, changes, failures, scale, window_) {
  const tools = drawingContext(canvas);
  if (!tools) return;
  const { context, width, height } = tools;
  const colours = palette();
  const floor = height - 7;
  const heights = new Float64Array(Math.ceil(width) + 1);
  let [level, most, x] = [0, 1, 0];
  eachChange(changes, (at, next) => {
    const to = Math.min(Math.max(Math.floor(scale.x(at)), 0), heights.length - 1);
    for (; x < to; x += 1) heights[x] = Math.max(heights[x], level);
    level = next;
    heights[to] = Math.max(heights[to], level);
    most = Math.max(most, level);
  });
  context.fillStyle = colours['bar-running'];
  heights.forEach((value, at) => {
    const high = (value / most) * (floor - 2);
    if (high > 0) context.fillRect(at, floor - Math.max(high, 1), 1, Math.max(high, 1));
  });
  context.fillStyle = colours.hairline;
  context.fillRect(0, floor, width, 1);
  context.fillStyle = colours['bar-failed'];
  let last = -10;
  for (const at of failures) {
    const tick = Math.round(scale.x(at));
    if (tick - last < 2) continue;
    context.fillRect(tick - 1, floor + 2, 2, 5);
    last = tick;
  }
  if (window_) {
    const [from, to] = window_.map((at) => scale.x(at));
    context.fillStyle = colours.veil;
    context.fillRect(0, 0, from, height);
    context.fillRect(to, 0, width - to, height);
    context.fillStyle = colours.accent;
    context.fillRect(from, 0, 1, height);
    context.fillRect(to - 1, 0, 1, height);
  }
}

// Let the reader drag over the strip to zoom time, and click to see all of it.
export function dragToZoom(strip, viewer) {
  let from = null;
  const time = (event) => viewer.wholeScale(strip.clientWidth).time(event.offsetX);
  strip.addEventListener('pointerdown', (event) => {
    from = [event.offsetX, time(event)];
    strip.setPointerCapture(event.pointerId);
  });
  strip.addEventListener('pointermove', (event) => {
    if (from && Math.abs(event.offsetX - from[0]) > 4) {
      viewer.zoom([from[1], time(event)].sort((one, other) => one - other));
    }
  });
  strip.addEventListener('pointerup', (event) => {
    if (from && Math.abs(event.offsetX - from[0]) <= 4) viewer.zoom(null);
    from = null;
  });
}
