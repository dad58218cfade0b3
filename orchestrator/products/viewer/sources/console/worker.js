// One stream for all tabs of a browser: it may have only six connections to a server.

import { Stream } from './stream.js';

const owners = new Map(); // number to {port, own}: whose subscription it is, and its number there
let last = 0;
let state = 'connecting';
const ports = new Set();

const stream = new Stream(
  (number, message) => {
    const { port, own } = owners.get(number);
    port.postMessage({ own, message });
  },
  (now) => {
    state = now;
    for (const port of ports) port.postMessage({ state });
  },
);

function leave(port) {
  ports.delete(port);
  for (const [number, owner] of owners) {
    if (owner.port !== port) continue;
    owners.delete(number);
    stream.unwatch(number);
  }
}

globalThis.addEventListener('connect', ({ ports: [port] }) => {
  ports.add(port);
  port.addEventListener('message', ({ data }) => {
    if (data.watch) {
      last += 1;
      owners.set(last, { port, own: data.watch });
      stream.watch(last, data.topic, data.seq);
    } else if (data.unwatch) {
      for (const [number, owner] of owners) {
        if (owner.port !== port || owner.own !== data.unwatch) continue;
        owners.delete(number);
        stream.unwatch(number);
      }
    } else if (data.retry) stream.resume(data.secret);
    else if (data.leave) leave(port);
    // A tab holds this lock as long as it lives: it is given away when the tab has crashed, too.
    else if (data.lock) navigator.locks?.request(data.lock, () => leave(port));
  });
  port.start();
  port.postMessage({ state });
});
