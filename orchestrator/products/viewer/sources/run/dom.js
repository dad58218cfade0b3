// Creates elements. Text is inserted as text: nothing here parses markup.

export function element(name, attributes = {}, ...content) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, '');
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  // One by one: as arguments of one call, very many would be too many.
  for (const it of content) if (it !== null && it !== undefined && it !== '') made.append(it);
  return made;
}

export function fill(parent, ...content) {
  parent.replaceChildren(...content.filter((it) => it !== null && it !== undefined && it !== ''));
}

// Make the children of an element like these, and keep what is the same: the focus, a selection, and
// the button that a pointer is pressing stay. What has `data-own` is never made into something else.
export function patch(parent, content) {
  const made = content.filter((it) => it !== null && it !== undefined && it !== '' && it !== false);
  made.forEach((child, at) => {
    const old = parent.childNodes[at];
    const node = typeof child === 'string' ? document.createTextNode(child) : child;
    if (!old) parent.append(node);
    else merge(old, node);
  });
  while (parent.childNodes.length > made.length) parent.lastChild.remove();
}

export function merge(old, node) {
  if (old === node) return;
  const isAlike = old.nodeName === node.nodeName && !old.dataset?.own && !node.dataset?.own;
  if (!isAlike) old.replaceWith(node);
  else if (node.nodeType === Node.TEXT_NODE) {
    if (old.data !== node.data) old.data = node.data;
  } else {
    for (const { name } of [...old.attributes]) if (!node.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of node.attributes) {
      if (old.getAttribute(name) === value) continue;
      // As an attribute, a style would be against the policy of the page.
      if (name === 'style') old.style.cssText = node.style.cssText;
      else old.setAttribute(name, value);
    }
    patch(old, [...node.childNodes]);
  }
}

// Say under a drawing what it shows, and what keys and a mouse do: a phone has neither.
export function setNote(note, words, keys = '') {
  patch(note, [words, keys && element('span', { class: 'mouse-only' }, ` · ${keys}`)]);
}

// The drawing context of a canvas, as sharp as the screen; null if the canvas is hidden.
export function drawingContext(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = 'middle';
  return { context, width, height };
}

// The colours of the theme that is on, by the names of the style sheet.
export function palette() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, {
    get: (known, name) => (known[name] ??= style.getPropertyValue(`--${String(name)}`).trim()),
  });
}

export const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

// The longest beginning of a text that fits; empty if it has fewer than `least` characters.
export function fitted(context, text, width, least = 4) {
  if (width < 14) return '';
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, Math.min(text.length, Math.ceil(width / 3))];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low >= least ? `${text.slice(0, low)}…` : '';
}
