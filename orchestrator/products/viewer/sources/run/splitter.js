// The border between the tree and the details, which can be moved; it stays where it was put.

import { element } from './dom.js';

const KEPT = 'orchestrator details';
const [LEAST, MOST, STEP] = [20, 75, 5]; // percent of the page

export function splitter(viewer) {
  const { style } = document.documentElement;
  const put = (share) => {
    const kept = Math.round(Math.min(MOST, Math.max(LEAST, share)));
    style.setProperty('--details', `${kept}%`);
    made.setAttribute('aria-valuenow', kept);
    storage()?.setItem(KEPT, kept);
    viewer.draw();
  };
  const made = element('div', {
    class: 'splitter', role: 'separator', tabindex: 0, 'aria-orientation': 'vertical', 'aria-label': 'Width of the details',
    'aria-valuemin': LEAST, 'aria-valuemax': MOST, 'aria-valuenow': 30,
    onpointerdown: (event) => made.setPointerCapture(event.pointerId),
    onpointermove: (event) => {
      if (!made.hasPointerCapture(event.pointerId)) return;
      const { right, width } = made.parentElement.getBoundingClientRect();
      put((100 * (right - event.clientX)) / width);
    },
    onkeydown: (event) => {
      const by = { ArrowLeft: STEP, ArrowRight: -STEP }[event.key];
      if (by) put(Number(made.getAttribute('aria-valuenow')) + by);
    },
  });
  const kept = Number(storage()?.getItem(KEPT));
  if (kept) put(kept);
  return made;
}

// A page without an origin, such as the frame of a notebook, has none.
function storage() {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
}
