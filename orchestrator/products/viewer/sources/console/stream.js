// The stream of events of a browser: it comes back by itself, and goes on where it was.
//
// What is watched is in the request. Each subscription remembers the number of the last message that
// was complete: with it the stream is opened again, after a loss, a sleep, or a change of what is watched.

import { withSecret } from '../run/page_secret.js';

const [FIRST_WAIT, LONGEST_WAIT] = [250, 5000];
const SILENCE = 40_000; // milliseconds: the server says something every 15 seconds
const GATHER = 30; // milliseconds: what is watched changes in bursts

export class Stream {
  // receive(number, message); note(state): 'connecting', 'live', 'lost' or 'signed out'.
  constructor(receive, note) {
    this.receive = receive;
    this.note = note;
    this.watches = new Map(); // number to {topic, seq}
    this.secret = ''; // the page's half of the sign-in
    this.wait = FIRST_WAIT;
    this.isPaused = false;
    this.abort = null;
    this.timer = null;
  }

  watch(number, topic, seq = 0) {
    this.watches.set(number, { topic, seq });
    this.reopen(GATHER);
  }

  unwatch(number) {
    if (this.watches.delete(number)) this.reopen(GATHER);
  }

  pause() {
    this.isPaused = true;
    this.close();
  }

  resume(secret = this.secret) {
    this.secret = secret;
    this.isPaused = false;
    this.wait = FIRST_WAIT;
    this.reopen(0);
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
    this.abort?.abort();
    this.abort = null;
  }

  reopen(after) {
    if (this.isPaused) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.close();
      if (this.watches.size) this.open();
    }, after);
  }

  async open() {
    const abort = this.abort = new AbortController();
    const query = new URLSearchParams();
    for (const [number, { topic, seq }] of this.watches) query.append('watch', `${number}:${topic}${seq ? `@${seq}` : ''}`);
    try {
      const answer = await fetch(new URL(`events?${query}`, scripts()), {
        credentials: 'same-origin', signal: abort.signal, headers: withSecret({ accept: 'text/event-stream' }, this.secret),
      });
      if (answer.status === 401) {
        this.note('signed out');
        return;
      }
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      await this.read(answer.body, abort);
    } catch {
      // It is opened again below, whatever went wrong.
    }
    if (this.abort !== abort) return;
    this.note('lost');
    const wait = this.wait * (0.5 + Math.random());
    this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
    this.reopen(wait);
  }

  async read(body, abort) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const silence = setTimeout(() => abort.abort(), SILENCE);
      const { done, value } = await reader.read();
      clearTimeout(silence);
      if (done) return;
      const events = (rest + value).split('\n\n');
      rest = events.pop();
      for (const event of events) this.take(event, abort);
    }
  }

  take(event, abort) {
    if (this.abort !== abort) return;
    const line = event.split('\n').find((it) => it.startsWith('data: '));
    if (!line) return;
    const message = JSON.parse(line.slice(6));
    if (message.open) {
      this.wait = FIRST_WAIT;
      this.note('live');
    }
    const watch = this.watches.get(message.to);
    if (!watch) return;
    // Until all rows are there, what the page has is of no number.
    if (message.reset) watch.seq = 0;
    if (message.seq) watch.seq = message.seq;
    this.receive(message.to, message);
  }
}

// Where the console's files are: in the folder of the worker, and below the page.
function scripts() {
  return globalThis.document ? new URL('console/', document.baseURI) : new URL('.', globalThis.location.href);
}
