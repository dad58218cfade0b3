// What stands around the views: the figures of the whole run, a note on its strip, and the keys.

import { peakOf } from './activity.js';
import { element } from './dom.js';
import { count, counted, duration, money, tokens } from './format.js';
import { COST, ESTIMATED } from './model.js';
import { describe } from './status.js';

export function headline(viewer) {
  const { model } = viewer;
  const figures = model.size ? [
    ['agents', count(model.size)], ['tokens', tokens(model.tokens(0), model.ofTotal(0, ESTIMATED))],
    ['cost', money(model.ofTotal(0, COST), model.unknownTotal(0))],
    ['time', duration(model.last - model.start)], ['peak', `${count(peakOf(viewer.changes))} at once`],
  ] : [];
  const state = model.size ? viewer.live?.status() ?? describe(model.status[0]) : null;
  return [
    element('h1', {}, viewer.title),
    state && element('span', { class: `state ${state.group}` }, `${state.glyph} ${state.word}`),
    ...(viewer.live?.header() ?? [element('span', { class: 'badge' }, 'replay · read-only')]),
    element('dl', { class: 'figures' }, ...figures.map(([name, value]) =>
      element('div', {}, element('dt', {}, name), element('dd', {}, value)))),
    viewer.live ? null : element('button', { type: 'button', class: 'chip theme', title: 'Light or dark', 'aria-label': 'Light or dark', onclick: () => viewer.swapTheme() }, '◑'),
  ];
}

export function stripNote(viewer) {
  const failed = viewer.failures.length
    ? [' · ', element('span', { class: 'count failed' }, '✗'), ` ${counted(viewer.failures.length, 'failure')} below the line`] : [];
  return [`agents at work, at most ${count(peakOf(viewer.changes))}`,
    ...failed, element('span', { class: 'wide-only' }, ' · drag to zoom time, click to see all'),
    viewer.critical.size ? element('span', { class: 'wide-only' }, ' · line over a bar: critical path') : '',
    viewer.model.waits.size ? element('span', { class: 'wide-only' }, ' · grey in a bar: waiting for the provider') : ''];
}

export function hints(viewer) {
  const acts = viewer.live ? [['a', 'approve'], ['m', 'message'], ['x', 'cancel']] : [['z', 'zoom time']];
  const hints = [['↑↓←→', 'move, fold'], ['/', 'search'], ['n', 'next failed'], ['w', 'next waiting'], ...acts, ['?', 'all keys']];
  return element('p', { class: 'hints' }, ...hints.flatMap(([key, words]) =>
    [element('kbd', {}, key), ` ${words} `]));
}
