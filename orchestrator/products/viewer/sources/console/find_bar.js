// Search within a conversation: counts what is found, and goes from one place to the next.

import { element } from '../run/dom.js';

const MOST = 1000; // places that are marked

export class FindBar {
  // where: the element that is searched.
  constructor(where, close) {
    this.where = where;
    this.places = [];
    this.at = -1;
    this.count = element('span', { class: 'hint', role: 'status' });
    this.input = element('input', { type: 'search', placeholder: 'Find in this conversation', 'aria-label': 'Find in this conversation', oninput: () => this.search(),
      onkeydown: (event) => {
        if (event.key === 'Enter') this.go(event.shiftKey ? -1 : 1);
        else if (event.key === 'Escape') close();
        else return;
        event.preventDefault();
        event.stopPropagation();
      } });
    const button = (words, label, act) => element('button', { type: 'button', class: 'chip', 'aria-label': label, onclick: act }, words);
    this.element = element('div', { class: 'find-bar', role: 'search' }, this.input, this.count,
      button('↑', 'Previous', () => this.go(-1)), button('↓', 'Next', () => this.go(1)), button('✕', 'Close the search', close));
  }

  open() {
    this.input.focus();
    this.input.select();
    this.search();
  }

  close() {
    this.places = [];
    globalThis.CSS?.highlights?.delete('found');
    globalThis.CSS?.highlights?.delete('found-now');
  }

  // isGrown: the conversation has more messages, and the reader stays at the place.
  search(isGrown = false) {
    const words = this.input.value.toLowerCase();
    this.places = [];
    const walker = document.createTreeWalker(this.where, NodeFilter.SHOW_TEXT, (it) => (it.parentElement.closest('button, h3, .branches') ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
    while (words && walker.nextNode() && this.places.length < MOST) {
      const text = walker.currentNode.data.toLowerCase();
      for (let at = text.indexOf(words); at >= 0 && this.places.length < MOST; at = text.indexOf(words, at + words.length)) {
        const range = new Range();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, Math.min(at + words.length, walker.currentNode.length));
        this.places.push(range);
      }
    }
    globalThis.CSS?.highlights?.set('found', new Highlight(...this.places));
    if (isGrown && this.at in this.places) {
      this.count.textContent = `${this.at + 1} of ${this.places.length}`;
      return;
    }
    this.at = this.places.length;
    this.go(-1);
  }

  go(step) {
    const many = this.places.length;
    this.count.textContent = many ? '' : this.input.value ? 'not found' : '';
    if (!many) return;
    this.at = (this.at + step + many) % many;
    this.count.textContent = `${this.at + 1} of ${many}`;
    const place = this.places[this.at];
    globalThis.CSS?.highlights?.set('found-now', new Highlight(place));
    for (let at = place.startContainer.parentElement.closest('details'); at; at = at.parentElement.closest('details')) at.open = true;
    place.startContainer.parentElement.scrollIntoView({ block: 'center' });
  }
}
