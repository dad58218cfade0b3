// The page's half of a sign-in. A browser sends the cookie, which is the other half, to every port of
// the host; this half stays in the storage of this origin, port included, and is sent in a header.

const PLACE = 'orchestrator page secret';
const HEADER = 'x-console-secret'; // `server/console/sign_in.py` repeats it
const KEPT = 60_000; // milliseconds that a browser may take to save or show a file

export function pageSecret() {
  return localStorage.getItem(PLACE) ?? '';
}

export function keepPageSecret(secret) {
  localStorage.setItem(PLACE, secret);
}

// A worker has no storage: its page tells it the secret.
export function withSecret(headers, secret = pageSecret()) {
  return { ...headers, [HEADER]: secret };
}

// Return the address of a file for this page alone. An element cannot send the header by itself.
export async function fileAddress(path, type = 'application/octet-stream') {
  const answer = await fetch(path, { headers: withSecret({}), credentials: 'same-origin', redirect: 'error' });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
  const address = URL.createObjectURL(new Blob([await answer.blob()], { type }));
  setTimeout(() => URL.revokeObjectURL(address), KEPT);
  return address;
}

export async function saveFile(path, name) {
  const link = document.createElement('a');
  link.href = await fileAddress(path);
  link.download = name;
  link.click();
}
