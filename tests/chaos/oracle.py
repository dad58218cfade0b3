"""The laws at the end of a round, checked by four witnesses.

Three are outside the processes that were killed: the log of effects, the provider's count, and the
receipts that clients were given. The fourth is the journal.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import attrs

from orchestrator.delegation import Ending, Mode, TaskRequest
from orchestrator.delegation.events import (
    ApprovalAnswered,
    Entry,
    Event,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ReplyDelivered,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TurnEnded,
    in_parts,
)
from orchestrator.kernel.journal.sqlite.check import check_journal
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.kernel.journal.store import Level
from orchestrator.testing import laws_of
from tests.chaos.life import MICRO_DOLLARS, Life
from tests.chaos.logs import Line
from tests.chaos.plan import Node, Plan, plan_of
from tests.chaos.provider import Exchange, answer_number

TAG: Final = re.compile(r"(s[\d-]+)/(\d+)#(\d+)")
"""How an effect names the node, the step and the answer that it comes from."""
PAID_AGAIN_SECONDS: Final = 0.5
"""How old a whole answer may be at a kill, and still be asked for again: one commit on a busy
machine."""


@attrs.frozen
class Death:
    """One kill."""

    how: str
    began: float
    """When the process was started."""
    at: float
    """When it was killed."""


@attrs.frozen
class Seen:
    """The contents of a round."""

    tasks: int
    requests: int
    effects: int
    receipts: int
    told: int
    paid_twice: int
    oldest: float
    """The age of the oldest answer that was paid twice, when its process died."""


@attrs.frozen
class PaidTwice:
    """A whole answer that was asked for again."""

    first: Exchange
    again: Exchange
    age: float


@attrs.frozen(kw_only=True)
class Evidence:
    """The statements of all witnesses."""

    life: Life
    plan: Plan
    exchanges: Sequence[Exchange]
    deaths: Sequence[Death]
    effects: Sequence[Line]
    receipts: Sequence[Line]
    entries: Sequence[Entry]

    @classmethod
    async def collect(
        cls, life: Life, exchanges: Sequence[Exchange], deaths: Sequence[Death]
    ) -> "Evidence":
        entries: Sequence[Entry] = ()
        if life.journal.exists():
            entries = list(await read_sqlite_journal(life.journal))
        return cls(
            life=life,
            plan=plan_of(life.plan),
            exchanges=exchanges,
            deaths=deaths,
            effects=life.effects.read(),
            receipts=life.receipts.read(),
            entries=entries,
        )

    def facts(self, *kinds: type[Event]) -> list[Any]:
        return [it.event for it in self.entries if isinstance(it.event, kinds)]

    def receipts_of(self, kind: str) -> list[Line]:
        return [line for line in self.receipts if line["kind"] == kind]

    @cached_property
    def sessions(self) -> dict[str, str]:
        """The session of each root: the one that a client knows, and of a run the only one."""
        runs = {
            it.agent: it.session
            for it in self.facts(SessionOpened)
            if self.plan.nodes[it.agent].is_run
        }
        return runs | {it["node"]: it["session"] for it in self.receipts_of("session")}

    @cached_property
    def requests(self) -> dict[str, TaskRequest]:
        return {it.request.id: it.request for it in self.facts(TaskRequested)}

    @cached_property
    def nodes(self) -> dict[str, str]:
        """The node of each task and session."""
        tasks = {id_: request.agent for id_, request in self.requests.items()}
        return tasks | {it.session: it.agent for it in self.facts(SessionOpened)}

    @cached_property
    def settled(self) -> dict[str, TaskSettled]:
        return {it.task: it for it in self.facts(TaskSettled)}

    @cached_property
    def anew(self) -> set[str]:
        """The nodes that a kill lets begin anew, with new tasks."""
        return {
            node
            for node in self.plan.nodes
            if any(it.on_restart == "restart" for it in self.plan.above(node))
        }

    @cached_property
    def durable_answers(self) -> set[int]:
        """The numbers of the answers that the journal has."""
        return {answer_number(it.message) for it in self.facts(ModelAnswered)}

    @cached_property
    def arrived(self) -> dict[int, float]:
        """When each whole answer had reached the process that asked for it."""
        return {it["number"]: it["at"] for it in self.life.arrivals.read()}

    @cached_property
    def paid_twice(self) -> list[PaidTwice]:
        """The whole answers that a killed process had asked for, and the next asked for again."""
        last: dict[tuple[str, int], Exchange] = {}
        found: list[PaidTwice] = []
        for exchange in self.exchanges:
            key = exchange.node, exchange.step
            first = last.get(key)
            if first is not None and exchange.node not in self.anew:
                kills = [it.at for it in self.deaths if it.began < first.begun < it.at]
                if kills and kills[0] < exchange.begun:
                    age = kills[0] - self.arrived.get(first.number, kills[0])
                    found.append(PaidTwice(first, exchange, age))
                last.pop(key)
            if exchange.is_whole:
                last[key] = exchange
        return found

    @cached_property
    def in_flight(self) -> set[int]:
        """The numbers of the requests that a kill broke off: no one knows what they used.

        A task makes one call at a time, so these are the requests since its last answer.
        """
        booked: dict[str, list[float]] = {}
        for entry in in_parts(self.entries):
            if isinstance(entry.event, ModelAnswered | ModelFailed):
                node = self.nodes[entry.event.task]
                booked.setdefault(node, []).append(entry.at)
        return {
            exchange.number
            for death in self.deaths
            for exchange in self.exchanges
            if death.began < exchange.begun < death.at
            and not any(exchange.begun < at < death.at for at in booked.get(exchange.node, ()))
        }

    @property
    def seen(self) -> Seen:
        return Seen(
            tasks=len(self.requests),
            requests=len(self.exchanges),
            effects=len(self.effects),
            receipts=len(self.receipts),
            told=sum(len(last.told) for last in self.last_conversations.values()),
            paid_twice=len(self.paid_twice),
            oldest=max((it.age for it in self.paid_twice), default=0),
        )

    @cached_property
    def last_conversations(self) -> dict[str, Exchange]:
        """The last request of each node: it has all that the node was ever told."""
        return {exchange.node: exchange for exchange in self.exchanges}


Law = Callable[[Evidence], Iterator[str]]


def find_problems(evidence: Evidence) -> list[str]:
    """Return what was expected and not seen, one sentence each."""
    return [f"{law.__name__}: {problem}" for law in LAWS for problem in law(evidence)]


def journal_is_sound(evidence: Evidence) -> Iterator[str]:
    yield from laws_of(evidence.entries)
    for finding in check_journal(evidence.life.journal):
        if finding.level is Level.WRONG:
            yield f"doctor: {finding.text}"


def all_work_is_done(evidence: Evidence) -> Iterator[str]:
    """Each task that was asked for has settled, and those that must succeed did."""
    plan = evidence.plan
    asked = Counter(request.agent for request in evidence.requests.values())
    for id_, request in evidence.requests.items():
        node = plan.nodes[request.agent]
        if id_ not in evidence.settled:
            yield f"{node.id} has not settled"
            continue
        outcome = evidence.settled[id_].outcome
        if plan.is_certain(node.id):
            if outcome.ending is not Ending.SUCCEEDED:
                yield f"{node.id} ended as {outcome.ending}: {outcome.error}"
            elif not outcome.output.startswith(f"done {node.id}/"):
                yield f"{node.id} has the output {outcome.output!r}"
    for node in plan.nodes.values():
        if asked[node.id] > 1 and node.id not in evidence.anew:
            yield f"{node.id} was requested {asked[node.id]} times"
        if not node.is_root and not asked[node.id] and plan.is_certain(node.id):
            yield f"{node.id} was never requested"


def acknowledged_messages_are_read(evidence: Evidence) -> Iterator[str]:
    """A message that was acknowledged is there once, and every message gets one reply."""
    said = Counter((it.session, it.text) for it in evidence.facts(MessageReceived))
    for receipt in evidence.receipts_of("asked"):
        times = said[receipt["session"], receipt["text"]]
        if times != 1:
            yield f"{receipt['text']!r} was acknowledged, and is there {times} times"
    for node in evidence.plan.roots:
        session = evidence.sessions[node.id]
        for number in range(1, len(node.asks) + 1):
            if said[session, f"ask {number} of {node.id}"] != 1:
                yield f"message {number} of {node.id} is not there once"


def runs_end(evidence: Evidence) -> Iterator[str]:
    """A run is begun once, and ends once, however often its process is killed."""
    opened = Counter(it.agent for it in evidence.facts(SessionOpened))
    ended = Counter(it.session for it in evidence.facts(TurnEnded))
    for node in evidence.plan.roots:
        if node.is_run and opened[node.id] != 1:
            yield f"run {node.id} was begun {opened[node.id]} times"
        if node.is_run and ended[evidence.sessions[node.id]] != 1:
            yield f"run {node.id} has {ended[evidence.sessions[node.id]]} ends"


def replies_are_given_once(evidence: Evidence) -> Iterator[str]:
    """Each turn has one reply, and two deliveries of it, at a kill, are the same one."""
    ended = {(it.session, it.turn): it.outcome for it in evidence.facts(TurnEnded)}
    taken: dict[tuple[str, int], list[Line]] = {}
    for receipt in evidence.receipts_of("reply"):
        taken.setdefault((receipt["session"], receipt["turn"]), []).append(receipt)
    for turn, receipts in taken.items():
        if turn not in ended:
            yield f"a reply was given of turn {turn}, which the journal does not know"
        elif len({receipt["text"] for receipt in receipts}) > 1:
            yield f"two replies were given of turn {turn}"
        kills = sum(receipts[0]["at"] < death.at <= receipts[-1]["at"] for death in evidence.deaths)
        # A turn that has read two messages replies to both.
        times = max(Counter(receipt["to"] for receipt in receipts).values())
        if times > 1 + kills:
            yield f"the reply of turn {turn} was given {times} times"
    delivered = Counter((it.session, it.turn) for it in evidence.facts(ReplyDelivered))
    # A run has no inbox: its reply is what `run` returns.
    known = {
        session
        for node, session in evidence.sessions.items()
        if not evidence.plan.nodes[node].is_run
    }
    for turn in ended:
        if turn[0] in known and delivered[turn] != 1:
            yield f"the reply of turn {turn} is delivered {delivered[turn]} times"


def acknowledged_steering_is_read(evidence: Evidence) -> Iterator[str]:
    steered = {(it.task, it.text): it.id for it in evidence.facts(Steered)}
    read = {
        id_: entry.at
        for entry in evidence.entries
        if isinstance(entry.event, SteeringSeen)
        for id_ in entry.event.ids
    }
    for receipt in evidence.receipts_of("steered"):
        text, node = receipt["text"], receipt["node"]
        if receipt["state"] not in {"waiting", "seen"}:
            continue
        id_ = steered.get((receipt["task"], text))
        if id_ is None:
            yield f"{text!r} to {node} was acknowledged ({receipt['state']}) and is lost"
        elif id_ in read:
            last = evidence.last_conversations.get(node)
            if (
                last is not None
                and last.begun > read[id_]
                and text not in last.heard
                and node not in evidence.anew
            ):
                yield f"{text!r} to {node} counts as read, and its model never got it"
        elif receipt["task"] not in evidence.settled:
            yield f"{text!r} to {node} was never read"


def acknowledged_verdicts_hold(evidence: Evidence) -> Iterator[str]:
    answers = {it.id: it.answer for it in evidence.facts(ApprovalAnswered)}
    for receipt in evidence.receipts_of("verdict"):
        answer = answers.get(receipt["approval"])
        if answer is None or answer.value != receipt["answer"]:
            yield f"the verdict {receipt['answer']} is in the journal as {answer}"
    for line in evidence.effects:
        node = evidence.plan.nodes[_node_of(line)]
        if line["kind"] == "guarded" and not node.approves:
            yield f"{line['tag']} ran, and was denied"


def cancelled_trees_are_quiet(evidence: Evidence) -> Iterator[str]:
    """After a cancel has returned nothing of that tree acts, also not in a later process."""
    asked = Counter(request.agent for request in evidence.requests.values())
    for receipt in evidence.receipts_of("cancelled"):
        node, at = receipt["node"], receipt["at"]
        if receipt["task"] not in evidence.settled:
            yield f"the cancel of {node} returned, and it has not settled"
        below = {
            it.id
            for it in evidence.plan.below(node)
            # A detached child of an ended task is a tree of its own, and so is a new task for an
            # agent that begins anew.
            if asked[it.id] == 1 and _is_joined_below(evidence, it, node)
        }
        for line in evidence.effects:
            if line["at"] > at and _node_of(line) in below:
                yield f"{line['kind']} {line['tag']} ran {line['at'] - at:.3f} s after"
        for exchange in evidence.exchanges:
            if exchange.begun > at and exchange.node in below and not exchange.abandoned:
                late = exchange.begun - at
                yield f"request {exchange.number} of {exchange.node} began {late:.3f} s after"


def _is_joined_below(evidence: Evidence, node: Node, top: str) -> bool:
    while node.id != top:
        modes = {it.mode for it in evidence.facts(TaskRequested) if it.request.agent == node.id}
        if Mode.DETACHED in modes:
            return False
        node = evidence.plan.nodes[node.parent]
    return True


def _node_of(line: Line) -> str:
    found = TAG.fullmatch(line["tag"])
    assert found is not None, line
    return found[1]


def receipts_of_detached_tasks_hold(evidence: Evidence) -> Iterator[str]:
    """A task that a model was told of is there, and its end is told to its session."""
    for exchange in evidence.exchanges:
        for label, id_ in exchange.receipts.items():
            if id_ not in evidence.requests:
                yield f"{exchange.node} was told of {label} ({id_}), which is lost"
    for root in evidence.plan.roots:
        yield from _untold(evidence, root)


def results_are_told_once(evidence: Evidence) -> Iterator[str]:
    """A notice comes once and to its own session; a result is that of the right task."""
    for node, last in evidence.last_conversations.items():
        is_root = evidence.plan.nodes[node].is_root
        for label, times in Counter(label for _, label in last.told).items():
            if times > 1:
                yield f"{node} was told {times} times of {label}"
            if not is_root or not label.startswith(f"{node}-"):
                yield f"{node} was told of {label}, which is not its own"
        for result in last.results:
            label, output = result["label"], result["output"]
            if not label.startswith(f"{node}-"):
                yield f"{node} has the result of {label}, which is not below it"
            elif result["status"] == "succeeded" and not output.startswith(f"done {label}/"):
                yield f"{node} has the output {output!r} of {label}"


def _untold(evidence: Evidence, root: Node) -> Iterator[str]:
    if not evidence.plan.is_certain(root.id):
        # A turn that fails before it asks its model tells the provider nothing.
        return
    session = evidence.sessions[root.id]
    last = evidence.last_conversations[root.id]
    told = {id_ for id_, _ in last.told} | {it["task_id"] for it in last.results}
    for fact in evidence.facts(TaskRequested):
        request = fact.request
        is_own = request.origin.session == session and fact.mode is Mode.DETACHED
        if is_own and request.id not in told:
            yield f"{root.id} was never told of {request.agent}"


def effects_happen_once(evidence: Evidence) -> Iterator[str]:
    """A tool that must not run twice ran once, from an answer that is in the journal."""
    steps: Counter[tuple[str, str, str]] = Counter()
    keys: dict[str, set[str]] = {}
    for line in evidence.effects:
        node, step, number = _parts(line["tag"])
        kind = line["kind"]
        if int(number) not in evidence.durable_answers:
            yield f"{kind} {line['tag']} comes from an answer that is lost"
        if kind in {"launch", "guarded", "command"} and node not in evidence.anew:
            steps[kind, node, step] += 1
        if kind == "pay":
            keys.setdefault(line["tag"], set()).add(line["key"])
    for (kind, node, step), times in steps.items():
        if times > 1:
            yield f"{kind} of {node}, step {step}, ran {times} times"
    for tag, used in keys.items():
        if len(used) > 1:
            yield f"{tag} was paid with {len(used)} keys"


def _parts(tag: str) -> tuple[str, str, str]:
    found = TAG.fullmatch(tag)
    assert found is not None, tag
    return found[1], found[2], found[3]


def budgets_hold_at_the_provider(evidence: Evidence) -> Iterator[str]:
    """The provider counts no more than a budget allows, what a kill broke off included."""
    for node in evidence.plan.nodes.values():
        if (budget := node.budget) is None:
            continue
        below = {it.id for it in evidence.plan.below(node.id)}
        used = [it for it in evidence.exchanges if it.node in below]
        tokens = sum(it.tokens for it in used)
        dollars = tokens * MICRO_DOLLARS / 1_000_000
        if budget.calls is not None and len(used) > budget.calls:
            yield f"{len(used)} requests below {node.id}, of {budget.calls}"
        if budget.tokens is not None and tokens > budget.tokens:
            yield f"{tokens} tokens below {node.id}, of {budget.tokens}"
        if budget.usd is not None and dollars > budget.usd:
            yield f"${dollars:.6f} below {node.id}, of ${budget.usd:.6f}"


def answers_are_paid_once(evidence: Evidence) -> Iterator[str]:
    """A durable answer is never asked for again, and no answer stays undurable for long."""
    for twice in evidence.paid_twice:
        where = f"answer {twice.first.number} of {twice.first.node}, step {twice.first.step}"
        if twice.first.number in evidence.durable_answers:
            yield f"{where} is in the journal, and was asked for again"
        elif twice.age > PAID_AGAIN_SECONDS:
            yield f"{where} was {twice.age:.3f} s old at the kill, and was asked for again"


def processes_are_gone(evidence: Evidence) -> Iterator[str]:
    mark = f"CHAOS_ROUND={evidence.life.home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environ = (folder / "environ").read_bytes()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            # It ended, or it is not ours.
            continue
        if mark in environ.split(b"\0") and int(folder.name) != os.getpid():
            yield f"process {folder.name} is left: {command!r}"


LAWS: Final[Sequence[Law]] = (
    journal_is_sound,
    all_work_is_done,
    acknowledged_messages_are_read,
    replies_are_given_once,
    runs_end,
    acknowledged_steering_is_read,
    acknowledged_verdicts_hold,
    cancelled_trees_are_quiet,
    receipts_of_detached_tasks_hold,
    results_are_told_once,
    effects_happen_once,
    budgets_hold_at_the_provider,
    answers_are_paid_once,
    processes_are_gone,
)
