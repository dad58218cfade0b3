// What a page watches: `watch(topic, receive)` calls `receive` with each message until it is stopped.

import { pageSecret } from '../run/page_secret.js';
import { newKey } from './api.js';
import { Stream } from './stream.js';

const HIDDEN = 30_000; // milliseconds after which a tab without a worker lets go of its stream

export class Live {
  constructor(version, note) {
    this.receivers = new Map(); // number to receiver
    this.last = 0;
    this.state = 'connecting';
    this.note = note;
    const receive = (number, message) => this.receivers.get(number)?.(message);
    const change = (state) => {
      this.state = state;
      this.note(state);
    };
    this.source = shared(version, receive, change) ?? alone(receive, change);
  }

  watch(topic, receive, seq = 0) {
    this.last += 1;
    const number = this.last;
    this.receivers.set(number, receive);
    this.source.watch(number, topic, seq);
    return () => {
      if (this.receivers.delete(number)) this.source.unwatch(number);
    };
  }

  retry() {
    this.source.retry();
  }
}

function shared(version, receive, change) {
  if (!globalThis.SharedWorker) return null;
  let worker;
  try {
    const url = `console/worker.js?v=${encodeURIComponent(version)}`;
    const policy = globalThis.trustedTypes?.createPolicy('worker', { createScriptURL: (it) => it });
    worker = new SharedWorker(policy ? policy.createScriptURL(url) : url, { name: `orchestrator ${version}` });
  } catch {
    return null;
  }
  const { port } = worker;
  port.addEventListener('message', ({ data }) => {
    if (data.state) change(data.state);
    else receive(data.own, data.message);
  });
  port.start();
  const lock = `tab ${newKey()}`;
  navigator.locks?.request(lock, () => new Promise(() => {}));
  // The worker asks for the lock in turn, when it is held here.
  navigator.locks?.query().then(() => port.postMessage({ lock }));
  window.addEventListener('pagehide', (event) => {
    if (!event.persisted) port.postMessage({ leave: true });
  });
  const retry = () => port.postMessage({ retry: true, secret: pageSecret() });
  window.addEventListener('online', retry);
  return {
    watch: (watch, topic, seq) => port.postMessage({ watch, topic, seq }),
    unwatch: (unwatch) => port.postMessage({ unwatch }),
    retry,
  };
}

// Without a worker every tab has a stream, so those that are not seen let go of theirs.
function alone(receive, change) {
  const stream = new Stream(receive, change);
  let timer = null;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => stream.pause(), HIDDEN);
    else if (stream.isPaused) stream.resume();
  });
  window.addEventListener('online', () => stream.resume());
  return {
    watch: (number, topic, seq) => stream.watch(number, topic, seq),
    unwatch: (number) => stream.unwatch(number),
    retry: () => stream.resume(pageSecret()),
  };
}
