// The critical path of a run: the chain of tasks that took as long as all of it.
//
// `delegation/tree/critical_path.py` says what that is, and finds it in the same way; tests compare both.

// Return the numbers of the tasks on it, the first first. Tasks that have not ended are measured until `now`.
export function criticalPath(model, now = model.last) {
  if (!model.size || model.started[0] === null || !model.turns.length) return [];
  return [...new Set([...new BackwardWalk(model, now).steps()].reverse())];
}

class BackwardWalk {
  constructor(model, now) {
    this.model = model;
    this.now = now;
    this.turn = model.turns.length - 1;
    this.joined = new Map(); // task to the children that it waited for, the last to end last
    this.detached = inTreeOrder(model).map((number, place) => [this.end(number), place, number])
      .filter(([, , number]) => model.mode[number] === 'detached')
      .sort(([end, place], [other, otherPlace]) => end - other || place - otherPlace);
    this.last = this.lastToEnd();
  }

  end(number) {
    return this.model.ended[number] ?? this.now;
  }

  // At the same moment, a task that goes on ends after one that has ended.
  isLater(number, other) {
    const [end, otherEnd] = [this.end(number), this.end(other)];
    return end > otherEnd || (end === otherEnd && this.goesOn(number) > this.goesOn(other));
  }

  goesOn(number) {
    return this.model.ended[number] === null;
  }

  // The root, or a detached task that outlived it: of those that end together, the first of the tree.
  lastToEnd() {
    return this.detached.toSorted(([, place], [, other]) => place - other)
      .reduce((last, [, , number]) => (this.isLater(number, last) ? number : last), 0);
  }

  // Yield the tasks from the last end back to the start, each for a part that took time.
  * steps() {
    const { model } = this;
    let [number, at, before] = [this.last, this.end(this.last), Infinity];
    for (;;) {
      const begin = this.begin(number, at);
      const child = this.lastJoined(number, at, before);
      if (child !== null && this.end(child) >= begin) {
        if (at > this.end(child)) yield number;
        [number, at, before] = [child, this.end(child), Infinity];
        continue;
      }
      if (model.started[number] !== null) {
        if (at > begin) yield number;
        at = begin;
      }
      if (number === 0) {
        if (this.turn <= 0) return;
        const [woke, since] = this.turnBack(at);
        if (at > since) yield 0;
        [number, at, before] = [woke, since, Infinity];
        continue;
      }
      const [need, ready] = this.ready(number);
      const since = Math.min(ready, at);
      if (at > since) yield number;
      at = since;
      before = need === null ? model.children[model.parent[number]].indexOf(number) : Infinity;
      number = need ?? model.parent[number];
    }
  }

  // Since when a task had run without a break, at a moment.
  begin(number, at) {
    const { started, turns } = this.model;
    if (number) return started[number] ?? at;
    while (this.turn > 0 && turns[this.turn][0] > at) this.turn -= 1;
    return turns[this.turn][0];
  }

  // The awaited child that ended last, of those requested before another one.
  lastJoined(number, at, before) {
    const { model } = this;
    if (!this.joined.has(number)) {
      const awaited = new Set(number ? [] : model.awaited.map(([, id]) => model.numbers.get(id)));
      const found = model.children[number].map((child, place) => [child, place]).filter(([child]) =>
        awaited.has(child) || (model.mode[child] === 'joined' && !model.isStoppedByParent(child)));
      this.joined.set(number, found.sort(([one, place], [other, otherPlace]) =>
        this.end(one) - this.end(other) || this.goesOn(one) - this.goesOn(other) || place - otherPlace));
    }
    const ends = this.joined.get(number);
    // The walk only goes back: what is too late now stays too late.
    for (; ends.length; ends.pop()) {
      const [child, place] = ends.at(-1);
      if (this.end(child) <= at && place < before) return child;
    }
    return null;
  }

  // Its last dependency, if any, and when it could have started.
  ready(number) {
    const { model } = this;
    let [last, ready] = [null, model.requested[number]];
    for (const id of model.needs[number]) {
      const need = model.numbers.get(id);
      if (this.end(need) >= ready) [last, ready] = [need, this.end(need)];
    }
    return [last, ready];
  }

  // The task that woke a session for a turn, and since when the turn could have begun.
  turnBack(at) {
    const [, before] = this.model.turns[this.turn - 1];
    const earlier = before === null ? at : Math.min(before, at);
    this.turn -= 1;
    while (this.detached.length && this.detached.at(-1)[0] > at) this.detached.pop();
    const woke = this.detached.at(-1);
    return woke && woke[0] > earlier ? [woke[2], woke[0]] : [0, earlier];
  }
}

// All tasks that someone may wait for, each parent before its children.
function inTreeOrder(model) {
  const [order, pending] = [[], [0]];
  while (pending.length) {
    const number = pending.pop();
    order.push(number);
    for (const child of model.children[number].toReversed()) {
      if (!model.isStoppedByParent(child)) pending.push(child);
    }
  }
  return order;
}
