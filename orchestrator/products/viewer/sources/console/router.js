// The address of what is shown: #/runs/RUN/tasks/TASK?view=flame. Every task and view has one.

export class Router {
  // routes: [[pattern, value], ...], such as ['runs/:run/tasks/:task', RunPage].
  constructor(routes, show) {
    this.routes = routes.map(([pattern, value]) => ({ parts: pattern.split('/').filter(Boolean), value }));
    this.show = show;
    this.current = null;
    this.hash = null; // the address of what is shown
    window.addEventListener('hashchange', () => this.read());
  }

  read() {
    this.hash = location.hash;
    const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
    const parts = path.split('/').filter(Boolean).map(decoded);
    for (const { parts: pattern, value } of this.routes) {
      const params = matched(pattern, parts);
      if (!params) continue;
      this.current = { value, params, query: new URLSearchParams(query ?? ''), path };
      this.show(this.current);
      return;
    }
    this.go('runs', {}, { replace: true });
  }

  // Show another address. Replacing leaves no step for the Back button: for what is typed or followed.
  go(path, query = {}, { replace = false } = {}) {
    const hash = address(path, query);
    if (hash === location.hash) return;
    if (!replace) {
      location.hash = hash;
      return;
    }
    history.replaceState(null, '', hash);
    this.read();
  }

  // Say in the address what is shown already, unless another one was asked for and is not shown yet.
  note(path, query = {}) {
    const hash = address(path, query);
    if (hash === location.hash || location.hash !== this.hash) return;
    history.replaceState(null, '', hash);
    this.hash = hash;
  }
}

export function address(path, query = {}) {
  const parts = (Array.isArray(path) ? path : path.split('/')).map(encodeURIComponent);
  const given = Object.entries(query).filter(([, value]) => value !== '' && value !== null && value !== undefined);
  return `#/${parts.join('/')}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}

function matched(pattern, parts) {
  if (pattern.length !== parts.length) return null;
  const params = {};
  for (const [at, part] of pattern.entries()) {
    if (part.startsWith(':')) params[part.slice(1)] = parts[at];
    else if (part !== parts[at]) return null;
  }
  return params;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
