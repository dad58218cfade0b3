// The page of those who are not signed in: by the link of the terminal, with a token, or by a provider.

import { element, fill } from '../run/dom.js';
import { keepPageSecret } from '../run/page_secret.js';

// The ticket of a sign-in under way: in the storage of this tab, which no other origin can read.
const TICKET = 'orchestrator sign-in';

export class Login {
  constructor(api, onSignedIn) {
    this.api = api;
    this.onSignedIn = onSignedIn;
    this.problem = element('p', { class: 'problem', role: 'alert' });
    this.token = element('input', {
      type: 'password', id: 'token', name: 'token', autocomplete: 'current-password', required: true,
      spellcheck: 'false', placeholder: 'orc_…',
    });
    const provider = document.querySelector('meta[name=oidc]')?.content;
    this.element = element('main', { class: 'login' },
      element('form', { onsubmit: (event) => this.submit(event) },
        element('img', { src: 'console/icon.svg', alt: '', width: 40, height: 40 }),
        element('h1', {}, 'Sign in to the console'),
        ...provider ? [element('button', { type: 'button', class: 'primary provider', onclick: () => this.leave() }, `Sign in with ${provider}`)] : [],
        element('p', { class: 'hint' }, provider ? 'Or open the link that ' : 'Open the link that ', element('code', {}, 'orchestrator ui'), ' or ',
          element('code', {}, 'orchestrator serve'), ' has printed. It works once.'),
        element('p', { class: 'hint' }, 'Or show the token of a key:'),
        element('label', { for: 'token' }, 'Token'), this.token, this.problem,
        element('button', { class: provider ? '' : 'primary' }, 'Sign in')));
  }

  say(words) {
    fill(this.problem, words);
  }

  async submit(event) {
    event.preventDefault();
    await this.signIn({ token: this.token.value });
  }

  // Go to the provider's page.
  async leave() {
    try {
      const { location: there, ticket } = await this.api.post('console/oidc');
      sessionStorage.setItem(TICKET, JSON.stringify({ ticket, hash: location.hash }));
      location.assign(there);
    } catch (error) {
      this.sayError(error);
    }
  }

  // Sign in with the answer of the provider in the address, if there is one; return whether it worked.
  async comeBack() {
    const answer = new URLSearchParams(location.search);
    const state = answer.get('state');
    if (!state) return false;
    const kept = JSON.parse(sessionStorage.getItem(TICKET) ?? '{}');
    sessionStorage.removeItem(TICKET);
    // A code has no place in the history of the browser.
    history.replaceState(null, '', `${location.pathname}${kept.hash ?? ''}`);
    if (!kept.ticket) {
      this.say('This browser did not begin this sign-in. Begin again.');
      return false;
    }
    if (answer.has('error')) {
      this.say(`The provider has refused the sign-in: ${answer.get('error_description') ?? answer.get('error')}`);
      return false;
    }
    const shown = { ticket: kept.ticket, state, code: answer.get('code') ?? '', iss: answer.get('iss') ?? '' };
    return this.signIn(shown, 'console/oidc/finish');
  }

  sayError(error) {
    this.say(`${error.message[0].toUpperCase()}${error.message.slice(1)}`);
  }

  // Return whether it worked.
  async signIn(shown, path = 'console/login') {
    try {
      const { secret } = await this.api.post(path, shown);
      keepPageSecret(secret);
    } catch (error) {
      this.sayError(error);
      return false;
    }
    this.token.value = '';
    this.onSignedIn();
    return true;
  }
}
