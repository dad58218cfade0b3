// Folds the facts of a journal, as the ledger does in Python: tests fold the same journals with both,
// and compare every task. It does not check the facts, since a ledger has accepted them.
//
// It does not know the rules, and so no slots. A task that a crash interrupted is `interrupted` here
// until it starts again; the ledger calls it `queued` if it must wait for a slot.

import { Model, USAGE } from './model.js';

const NONE = 'none';
const WITH_CALLER = new Set(['caller_gone', 'not_awaited', 'ended_first']); // causes

class Session {
  constructor(root) {
    this.model = new Model();
    this.root = root;
    this.closed = false;
    this.turn = null; // {number, capability, interrupted}
    this.last = null; // how the last turn ended
    this.outstanding = new Set(); // detached tasks that have not ended
    this.processes = new Map(); // commands in the background: id to {task, notify}
    this.active = new Set();
    this.asks = new Map(); // task to a map from call to {id, isOpen, words}
    this.unsettled = new Map(); // task to the set of its unsettled children
    this.names = new Map(); // task to the number of its children of each agent
    this.notices = new Map(); // the number of a fact to the detached task that it ended, and when
    this.callsBegan = 0; // when the last answer of the session requested tool calls
  }

  addWait({ task, waited }) {
    if (!waited) return;
    const { waits, numbers } = this.model;
    const number = numbers.get(task);
    waits.set(number, [...(waits.get(number) ?? []), waited]);
  }

  mark(task, attributes) {
    const number = this.model.numbers.get(task);
    for (const [name, value] of Object.entries(attributes)) this.model[name][number] = value;
  }

  of(task, name) {
    return this.model[name][this.model.numbers.get(task)];
  }

  isAsking(task) {
    const asks = this.asks.get(task);
    return asks !== undefined && [...asks.values()].some((ask) => ask.isOpen);
  }

  working(task) {
    return this.isAsking(task) ? 'waiting' : 'running';
  }

  dropAsks(task) {
    this.asks.delete(task);
    this.mark(task, { asks: '' });
  }

  dropProcesses(task) {
    for (const [id, process] of this.processes) {
      if (process.task === task) this.processes.delete(id);
    }
  }

  get awaitsNotice() {
    return this.outstanding.size > 0 || [...this.processes.values()].some((it) => it.notify);
  }

  review() {
    this.mark(this.root, { status: this.status });
  }

  get status() {
    if (this.turn?.interrupted) return 'interrupted';
    if (this.turn) return this.working(this.root);
    if (this.awaitsNotice) return 'waiting';
    return this.last ?? 'queued';
  }

  *below(task) {
    for (const child of this.unsettled.get(task) ?? []) {
      yield child;
      yield* this.below(child);
    }
  }
}

function usageOf(usage) {
  return USAGE.map((name) => usage[name] ?? 0);
}

// The facts that change the page. All others only show that the session is alive.
const FOLD = {
  SessionOpened(session, body, at) {
    session.model.add({
      id: body.session, parent: null, agent: body.agent, path: `/${body.agent}`, mode: 'root',
      requested: at,
    });
    session.unsettled.set(body.session, new Set());
  },
  DoorOpened: (session) => session.review(),
  DoorClosed: (session) => session.review(),
  SessionClosed(session) {
    session.closed = true;
    session.review();
  },
  MessageReceived(session, body) {
    if (!session.of(session.root, 'goal')) session.mark(session.root, { goal: body.text });
    session.review();
  },
  TurnStarted(session, body, at) {
    session.turn = { number: body.turn, capability: body.capability, interrupted: false };
    session.active.add(session.root);
    session.mark(session.root, { ended: null, error: '' });
    if (session.of(session.root, 'started') === null) session.mark(session.root, { started: at });
    session.model.turns.push([at, null]);
    session.review();
  },
  TurnResumed(session, body) {
    if (body.afresh) session.dropAsks(session.root);
    session.turn = { ...session.turn, capability: body.capability, interrupted: false };
    session.active.add(session.root);
    session.review();
  },
  TurnEnded(session, body, at) {
    const { capability } = session.turn;
    session.turn = null;
    session.active.delete(session.root);
    session.dropAsks(session.root);
    if (capability === NONE) session.dropProcesses(session.root);
    session.last = body.outcome.ending;
    session.mark(session.root, { ended: at, error: body.outcome.error ?? '' });
    session.model.turns.at(-1)[1] = at;
    session.review();
  },
  TaskRequested(session, body, at) {
    const { request } = body;
    const names = session.names.get(request.parent) ?? new Map();
    session.names.set(request.parent, names);
    const number = (names.get(request.agent) ?? 0) + 1;
    names.set(request.agent, number);
    session.model.add({
      id: request.id,
      parent: request.parent,
      agent: request.agent,
      goal: request.goal,
      label: request.label,
      path: `${session.of(request.parent, 'path')}/${request.agent}[${number}]`,
      mode: body.mode,
      reason: body.reason,
      requested: at,
      needs: [...new Set(request.needs ?? [])],
      chosen: request.chosen ? choicesText(request.chosen) : '',
    });
    session.unsettled.set(request.id, new Set());
    session.unsettled.get(request.parent).add(request.id);
    if (body.mode === 'detached') session.outstanding.add(request.id);
    if (body.started) FOLD.TaskStarted(session, { task: request.id }, at);
  },
  TaskStarted(session, body, at) {
    if (body.afresh) session.dropAsks(body.task);
    const first = session.of(body.task, 'started');
    session.mark(body.task, { status: session.working(body.task), started: first ?? at });
    session.active.add(body.task);
  },
  ModelAnswered(session, body, at) {
    if (body.message.model) session.mark(body.task, { models: body.message.model });
    if (body.message.calls?.length && body.task === session.root) session.callsBegan = at;
    if (body.copied) return;
    session.addWait(body);
    session.model.spend(session.model.numbers.get(body.task), usageOf(body.message.usage ?? {}));
  },
  ModelFailed(session, body) {
    session.addWait(body);
    session.model.spend(session.model.numbers.get(body.task), usageOf(body.usage));
  },
  ToolAnswered(session, body) {
    for (const seq of body.mail ?? []) {
      const { task, at } = session.notices.get(seq) ?? {};
      if (at >= session.callsBegan) session.model.awaited.push([session.callsBegan, task]);
    }
    if (session.asks.get(body.task)?.delete(body.message.call)) updateQuestions(session, body.task);
    session.mark(body.task, { tools: session.of(body.task, 'tools') + 1 });
  },
  QuietChanged(session, body) {
    session.mark(body.task, { status: body.quiet ? 'quiet' : session.working(body.task) });
  },
  ApprovalAsked(session, body) {
    const asks = session.asks.get(body.task) ?? new Map();
    session.asks.set(body.task, asks);
    asks.set(body.call, { id: body.id, isOpen: true, words: body.details || body.subject });
    updateQuestions(session, body.task);
  },
  ApprovalAnswered(session, body) {
    for (const ask of session.asks.get(body.task)?.values() ?? []) {
      if (ask.id === body.id) ask.isOpen = false;
    }
    updateQuestions(session, body.task);
  },
  ProcessStarted(session, body) {
    session.processes.set(body.id, { task: body.task, notify: body.notify });
    session.review();
  },
  ProcessMatched: (session) => session.review(),
  ProcessEnded(session, body) {
    session.processes.delete(body.id);
    session.review();
  },
  ProcessUnreachable(session, body) {
    // Nothing waits for what cannot be seen.
    session.processes.delete(body.id);
    session.review();
  },
  TaskSettled(session, body, at, seq) {
    const { task, outcome } = body;
    if (body.answer) FOLD.ModelAnswered(session, body.answer, at);
    const isCancelled = outcome.ending === 'cancelled';
    if (session.outstanding.has(task) && !isCancelled) session.notices.set(seq, { task, at });
    session.mark(task, { abandoned: isCancelled && WITH_CALLER.has(outcome.cause) });
    if (outcome.kept) session.mark(task, { label: `kept · ${session.of(task, 'label') || session.of(task, 'goal')}` });
    session.active.delete(task);
    session.unsettled.delete(task);
    session.unsettled.get(session.model.ids[session.of(task, 'parent')]).delete(task);
    session.outstanding.delete(task);
    session.mark(task, { status: outcome.ending, ended: at, error: outcome.error ?? '' });
    session.dropAsks(task);
    session.dropProcesses(task);
    session.review();
  },
};

function updateQuestions(session, task) {
  const open = [...(session.asks.get(task)?.values() ?? [])].filter((ask) => ask.isOpen);
  session.mark(task, { asks: open.map((ask) => ask.words).join('\n') });
  if (session.active.has(task) && task !== session.root) {
    session.mark(task, { status: session.working(task) });
  }
  session.review();
}

export class Ledger {
  constructor() {
    this.sessions = new Map();
    this.seq = 0;
  }

  // Fold one fact: {seq, at, session, kind, body}.
  fold({ seq, at, session: id, kind, body }) {
    if (seq <= this.seq) throw new Error(`fact ${seq} is not after ${this.seq}`);
    if (kind === 'JournalOpened') {
      for (const session of this.sessions.values()) interrupt(session);
    } else {
      if (kind === 'SessionOpened') this.sessions.set(id, new Session(body.session));
      const session = this.sessions.get(id);
      FOLD[kind]?.(session, body, at, seq);
      session.model.see(at);
    }
    this.seq = seq;
  }
}

// The process that wrote the journal is gone, so nothing runs.
function interrupt(session) {
  if (session.turn) {
    session.turn.interrupted = true;
    session.active.delete(session.root);
  }
  for (const task of session.below(session.root)) {
    session.active.delete(task);
    session.mark(task, { status: 'interrupted' });
  }
  session.review();
}

// The choices of a parent for one task, in the words of the Python tree.
function choicesText({ model, effort, budget }) {
  const amounts = Object.entries(budget ?? {}).filter(([name, amount]) => name !== 'name' && amount !== null);
  const given = amounts.map(([name, amount]) => `${name}=${amount}`).join(', ');
  return [model && `model ${model}`, effort && `effort ${effort}`, budget && `budget (${given})`].filter(Boolean).join(', ');
}
