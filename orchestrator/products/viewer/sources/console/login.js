// The page of those who are not signed in: by the link of the terminal, or with a token.

import { element, fill } from '../run/dom.js';
import { keepPageSecret } from '../run/page_secret.js';

export class Login {
  constructor(api, onSignedIn) {
    this.api = api;
    this.onSignedIn = onSignedIn;
    this.problem = element('p', { class: 'problem', role: 'alert' });
    this.token = element('input', {
      type: 'password', id: 'token', name: 'token', autocomplete: 'current-password', required: true,
      spellcheck: 'false', placeholder: 'orc_…',
    });
    this.element = element('main', { class: 'login' },
      element('form', { onsubmit: (event) => this.submit(event) },
        element('img', { src: 'console/icon.svg', alt: '', width: 40, height: 40 }),
        element('h1', {}, 'Sign in to the console'),
        element('p', { class: 'hint' }, 'Open the link that ', element('code', {}, 'orchestrator ui'), ' or ',
          element('code', {}, 'orchestrator serve'), ' has printed. It works once.'),
        element('p', { class: 'hint' }, 'Or show the token of a key:'),
        element('label', { for: 'token' }, 'Token'), this.token, this.problem,
        element('button', { class: 'primary' }, 'Sign in')));
  }

  say(words) {
    fill(this.problem, words);
  }

  async submit(event) {
    event.preventDefault();
    await this.signIn({ token: this.token.value });
  }

  // Return whether it worked.
  async signIn(shown) {
    try {
      const { secret } = await this.api.post('console/login', shown);
      keepPageSecret(secret);
    } catch (error) {
      this.say(`${error.message[0].toUpperCase()}${error.message.slice(1)}`);
      return false;
    }
    this.token.value = '';
    this.onSignedIn();
    return true;
  }
}
