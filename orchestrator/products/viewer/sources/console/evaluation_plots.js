// The drawings of an evaluation: differences, scores against costs with the Pareto front, distributions.

import { element } from '../run/dom.js';

const NAMESPACE = 'http://www.w3.org/2000/svg';
export const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

function svg(name, attributes = {}, ...content) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...content);
  return made;
}

function drawing(width, height, label, ...content) {
  return svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label }, ...content);
}

export function number(value) {
  return value === null ? '–' : value.toFixed(2);
}

export function signed(value) {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(2)}`;
}

export function cost(value) {
  if (value === null) return 'no price';
  return value === 0 ? '$0' : `$${value.toFixed(value >= 0.001 ? 4 : 6)}`;
}

export function letter(at) {
  return LETTERS[at] ?? String(at + 1);
}

// The interval of a difference, on a scale that all differences of the page share.
export function differencePlot(interval, verdict, widest) {
  const [width, middle] = [260, 130];
  const x = (value) => middle + (value / widest) * (middle - 8);
  const kind = { better: 'done', worse: 'failed' }[verdict] ?? 'quiet';
  return drawing(width, 22, `difference ${signed(interval.value)}, from ${signed(interval.low)} to ${signed(interval.high)}`,
    svg('line', { x1: middle, x2: middle, y1: 0, y2: 22, class: 'zero' }),
    svg('line', { x1: x(interval.low), x2: x(interval.high), y1: 11, y2: 11, class: `span ${kind}` }),
    svg('circle', { cx: x(interval.value), cy: 11, r: 5, class: `dot ${kind}` }));
}

// The versions as points with 95 % of their mean scores; versions without a column are grey.
export function costPlot(versions, front, shown) {
  const points = versions.map((it, at) => ({ ...it, at })).filter((it) => it.interval && it.cost !== null);
  if (!points.length) return element('p', { class: 'hint' }, 'No version has a price and a score.');
  const [width, height, left, top, bottom] = [520, 270, 40, 16, 28];
  const widest = Math.max(...points.map((it) => it.cost)) * 1.25 || 1;
  const low = Math.min(0, ...points.map((it) => it.interval.low));
  const high = Math.max(1, ...points.map((it) => it.interval.high));
  const x = (value) => left + (value / widest) * (width - left - 8);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const parts = [];
  for (let step = 0; step <= 4; step += 1) {
    const value = low + ((high - low) * step) / 4;
    parts.push(svg('line', { x1: left, x2: width, y1: y(value), y2: y(value), class: 'grid' }),
      svg('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end' }, value.toFixed(2)));
  }
  const path = front.map(([at, score], index) => `V ${y(score)} H ${x(front[index + 1]?.[0] ?? widest)}`);
  parts.push(svg('path', { d: `M ${x(front[0][0])} ${y(low)} ${path.join(' ')}`, class: 'front' }),
    svg('text', { x: width, y: y(front.at(-1)[1]) - 6, 'text-anchor': 'end', class: 'front-name' }, 'Pareto front'));
  // Points at the same place have one label.
  const labels = new Map();
  for (const it of points) {
    const place = `${Math.round(x(it.cost) / 12)} ${Math.round(y(it.interval.value) / 8)}`;
    labels.set(place, [...(labels.get(place) ?? []), it]);
  }
  for (const near of labels.values()) {
    const [{ cost: at, interval }] = near;
    parts.push(svg('text', { x: x(at) - 9, y: y(interval.value) + 4, 'text-anchor': 'end', class: near.some((it) => shown.includes(it.at)) ? 'name' : '' },
      near.map((it) => letter(it.at)).join(' ')));
  }
  for (const it of [...points].sort((one, other) => shown.includes(one.at) - shown.includes(other.at))) {
    const isShown = shown.includes(it.at);
    parts.push(svg('g', { class: isShown ? 'point' : 'point earlier' },
      svg('title', {}, `${letter(it.at)} ${it.name}: score ${number(it.interval.value)}, ${cost(it.cost)} a case`),
      svg('line', { x1: x(it.cost), x2: x(it.cost), y1: y(it.interval.low), y2: y(it.interval.high) }),
      svg('circle', { cx: x(it.cost), cy: y(it.interval.value), r: isShown ? 5 : 4 })));
  }
  parts.push(svg('text', { x: left, y: height - 6 }, '$0'),
    svg('text', { x: width, y: height - 6, 'text-anchor': 'end' }, `${cost(widest)} a case`));
  return drawing(width, height, 'mean score against mean cost of each version', ...parts);
}

// How many cases have each score, in ten bars.
export function distribution(bars, name) {
  if (!bars) return element('p', { class: 'hint' }, 'No scores.');
  const [width, height] = [160, 44];
  const most = Math.max(...bars.counts);
  return drawing(width, height + 14, `${name}: ${bars.counts.join(', ')} cases from ${bars.low.toFixed(1)} to ${bars.high.toFixed(1)}`,
    ...bars.counts.map((it, at) => svg('rect', { x: at * 16, y: height - (height * it) / most, width: 14, height: (height * it) / most, class: 'amount' },
      svg('title', {}, `${it} cases`))),
    svg('line', { x1: 0, x2: width, y1: height, y2: height, class: 'grid' }),
    svg('text', { x: 0, y: height + 12 }, bars.low.toFixed(1)),
    svg('text', { x: width, y: height + 12, 'text-anchor': 'end' }, bars.high.toFixed(1)));
}

export function scoreBar(value) {
  const width = 36 * Math.min(Math.max(value, 0), 1);
  return svg('svg', { width: 36, height: 8, 'aria-hidden': 'true' },
    svg('rect', { width: 36, height: 8, rx: 4, class: 'track' }), svg('rect', { width, height: 8, rx: 4, class: 'amount' }));
}
