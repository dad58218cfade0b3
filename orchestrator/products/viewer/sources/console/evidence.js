// The evidence of a task that has ended: facts about its effects, from the answers of its tools.

import { element } from '../run/dom.js';
import { count, counted, printable } from '../run/format.js';

const UNUSED = { write: 'It wrote no file with its tools.', command: 'It ran no command.' };

export class EvidenceReader {
  // drawn: called when evidence has arrived.
  constructor(console_, drawn) {
    this.console = console_;
    this.drawn = drawn;
    this.known = new Map(); // a task and its end, to its evidence
  }

  // What is known of a task, as a section; it is read when it is first asked for.
  section(task, ended) {
    if (ended === null) return null;
    const key = `${task} ${ended}`;
    if (!this.known.has(key)) this.read(task, key);
    const evidence = this.known.get(key);
    return evidence ? sectionOf(evidence) : null;
  }

  async read(task, key) {
    this.known.set(key, null);
    try {
      this.known.set(key, (await this.console.api.get(`v1/tasks/${task}`)).evidence);
    } catch {
      this.known.delete(key); // asked for again with the next change
      return;
    }
    this.drawn();
  }
}

function sectionOf(it) {
  const lines = [
    ...(it.files ?? []).map(fileLine),
    ...(it.commands ?? []).map(commandLine),
    ...(it.failed ?? []).map(({ tool, error }) => line('failed', tool, ` failed: ${printable(error)}`)),
    ...(it.denied ?? []).map(({ tool, error }) => line('failed', tool, ` was denied: ${printable(error)}`)),
    ...(it.children ?? []).map(({ path, ending }) => line('failed', path, ending ? ` ended as ${ending}` : ' had not ended')),
    ...(it.unused ?? []).map((effect) => line('', null, UNUSED[effect] ?? effect)),
  ];
  if (it.left_out) lines.push(line('', null, `${count(it.left_out)} more`));
  return element('section', { class: 'evidence', 'aria-label': 'Evidence' },
    element('h3', {}, 'Evidence'),
    it.calls ? element('p', { class: 'facts' }, callsOf(it.calls)) : null,
    lines.length ? element('ul', {}, ...lines) : null);
}

function callsOf(calls) {
  const tools = Object.entries(calls).map(([tool, times]) => `${printable(tool)} ${count(times)}`);
  return tools.length ? `Tool calls: ${tools.join(', ')}` : 'It called none of its tools.';
}

function fileLine({ path, before, after, added = 0, removed = 0 }) {
  const verb = before ? 'changed ' : 'created ';
  return line('', path, element('span', { class: 'hint', title: `SHA-256 ${after}` },
    ` +${counted(added, 'line')} -${count(removed)}`), verb);
}

function commandLine({ command, exit_code: code, is_test: isTest }) {
  const end = code === undefined || code === null ? 'it did not end' : `exit code ${code}`;
  return line(code === 0 ? 'done' : 'failed', command, `: ${end}`, isTest ? 'ran tests ' : 'ran ');
}

// The colour of a line is the colour of its group.
function line(group, code, words, verb = '') {
  return element('li', { class: group, dir: 'auto' }, verb, code === null ? null : element('code', {}, printable(code)), words);
}
