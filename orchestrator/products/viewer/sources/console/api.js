// Asks the server, by the routes that every client has. The cookie goes along by itself.

import { withSecret } from '../run/page_secret.js';

const SIGN_IN = ['console/login', 'console/oidc', 'console/oidc/finish'];

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status; // 0: the server was not reached
    this.code = code;
  }
}

export class Api {
  // unlock(scope): asks for the approval code, and returns whether the sign-in has the scope now.
  constructor(onSignedOut, unlock) {
    this.onSignedOut = onSignedOut;
    this.unlock = unlock;
  }

  get(path) {
    return this.ask('GET', path);
  }

  // A request that is sent twice, by a nervous hand or network, is carried out once.
  // signal: ends the request, and what the server does for it, when it is aborted.
  post(path, body, key = newKey(), signal = undefined) {
    return this.ask('POST', path, body, { 'idempotency-key': key }, signal);
  }

  remove(path) {
    return this.ask('DELETE', path);
  }

  async ask(method, path, body, headers = {}, signal = undefined) {
    const sent = { method, headers: withSecret(headers), signal, credentials: 'same-origin', redirect: 'error' };
    if (body !== undefined) {
      sent.body = JSON.stringify(body);
      sent.headers['content-type'] = 'application/json';
    }
    let answer;
    try {
      answer = await fetch(path, sent);
    } catch {
      if (signal?.aborted) throw new ApiError(0, 'aborted', 'Stopped.');
      throw new ApiError(0, 'unreachable', 'The server cannot be reached.');
    }
    const text = await answer.text();
    const isJson = (answer.headers.get('content-type') ?? '').startsWith('application/json');
    const value = isJson && text ? JSON.parse(text) : text;
    if (answer.ok) return value;
    if (answer.status === 401 && !SIGN_IN.includes(path)) this.onSignedOut();
    const problem = value?.error ?? {};
    if (problem.code === 'missing_scope' && await this.unlock(problem.param)) return this.ask(method, path, body, headers, signal);
    throw new ApiError(answer.status, problem.code ?? '', problem.message ?? `The server answered ${answer.status}.`);
  }
}

export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((it) => it.toString(16).padStart(2, '0')).join('');
}
