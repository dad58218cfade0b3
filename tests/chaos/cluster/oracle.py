"""The laws at the end of a round, checked by witnesses outside of its processes."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import attrs

from orchestrator.backends import store_at
from orchestrator.delegation import Ending
from orchestrator.delegation.events import (
    CallPlaced,
    Entry,
    Event,
    MessageReceived,
    ReplyDelivered,
    TaskRequested,
    TaskSettled,
    TurnEnded,
)
from orchestrator.kernel.journal.store import Finding, Level
from orchestrator.products.cluster.database.connection import connect
from orchestrator.testing import laws_of
from tests.chaos.cluster.changes import Change, read_changes
from tests.chaos.cluster.home import Home
from tests.chaos.cluster.processes import Process
from tests.chaos.cluster.work import BUYERS, DETACHED, JOINED, SHOP_CALLS, WORKER_LEASE
from tests.chaos.logs import Line

BROKEN_OFF: Final = "broken off"
UNDER_LOCK: Final = ("entries", "journals")
"""The tables whose changes hold a lock that a take-over waits for."""


@attrs.frozen(kw_only=True)
class Evidence:
    """The statements of all witnesses."""

    effects: Sequence[Line]
    requests: Sequence[Line]
    receipts: Sequence[Line]
    entries: Sequence[Entry]
    findings: Sequence[Finding]
    changes: Sequence[Change]
    workers: Mapping[int, Process]
    """By the numbers of the processes."""

    @classmethod
    def collect(cls, home: Home, address: str, workers: Mapping[int, Process]) -> "Evidence":
        """Read everything; blocking.

        Args:
            home: the folder of the round.
            address: of the journal.
            workers: all that there were.
        """
        store = store_at(address)
        session = home.receipts.read("session")[0]["session"]
        with store.open_reader() as reader:
            entries = reader.entries(session)
        with connect(address, application="chaos") as connection:
            changes = read_changes(connection)
        return cls(
            effects=home.effects.read(),
            requests=home.requests.read(),
            receipts=home.receipts.read(),
            entries=entries,
            findings=list(store.check()),
            changes=changes,
            workers=workers,
        )

    def facts(self, *kinds: type[Event]) -> list[Any]:
        return [it.event for it in self.entries if isinstance(it.event, kinds)]

    @cached_property
    def tags(self) -> dict[str, str]:
        """The goal of each task."""
        return {it.request.id: it.request.goal for it in self.facts(TaskRequested)}

    @cached_property
    def writers(self) -> list[tuple[str, float]]:
        """The processes that took the journal over, and when."""
        found: list[tuple[str, float]] = []
        epoch = 0
        for change in self.changes:
            if change.epoch is not None and change.epoch > epoch:
                epoch = change.epoch
                found.append((change.process, change.at))
        return found

    @property
    def broken_off(self) -> int:
        """How many tasks have a call of which no one knows whether it ran."""
        return sum(BROKEN_OFF in it.outcome.output for it in self.facts(TaskSettled))


Law = Callable[[Evidence], Iterator[str]]


def find_problems(evidence: Evidence) -> list[str]:
    """Return what was expected and not seen, one sentence each."""
    return [f"{law.__name__}: {problem}" for law in LAWS for problem in law(evidence)]


def journal_is_sound(evidence: Evidence) -> Iterator[str]:
    yield from laws_of(evidence.entries)
    for finding in evidence.findings:
        if finding.level is Level.WRONG:
            yield f"doctor: {finding.text}"


def fenced_writers_change_nothing(evidence: Evidence) -> Iterator[str]:
    """From the moment a journal is taken over, no statement of an earlier writer takes effect.

    A process may take the journal over again, as a standby whose first opening failed does.
    """
    for change in evidence.changes:
        when = change.at if change.table in UNDER_LOCK else change.began
        writers = [(writer, at) for writer, at in evidence.writers if at <= when]
        own = [number for number, (writer, _) in enumerate(writers) if writer == change.process]
        if own and own[-1] + 1 < len(writers):
            over = when - writers[own[-1] + 1][1]
            yield f"{change.process} changed {change.table} {over:.3f} s after it was fenced"


def tasks_are_done_once(evidence: Evidence) -> Iterator[str]:
    """Each task is requested once, settles once, and says what was done."""
    wanted = {
        *(f"joined-{number}" for number in range(JOINED)),
        *(f"detached-{number}" for number in range(DETACHED)),
        *(f"buy-{number}" for number in range(BUYERS)),
        "shop",
    }
    asked = Counter(evidence.tags.values())
    if asked != Counter(wanted):
        yield f"requested: {asked - Counter(wanted)} too much, {Counter(wanted) - asked} not"
    settled = Counter(it.task for it in evidence.facts(TaskSettled))
    for task, tag in evidence.tags.items():
        if settled[task] != 1:
            yield f"{tag} settled {settled[task]} times"
    launched = Counter(it["tag"] for it in evidence.effects if it["kind"] == "launched")
    for fact in evidence.facts(TaskSettled):
        tag, outcome = evidence.tags[fact.task], fact.outcome
        if tag.startswith("buy") or tag == "shop":
            continue
        says = f"launched {tag}" in outcome.output, BROKEN_OFF in outcome.output
        if outcome.ending is not Ending.SUCCEEDED:
            yield f"{tag} ended as {outcome.ending}: {outcome.error}"
        elif says not in {(True, False), (False, True)}:
            yield f"{tag} has the output {outcome.output!r}"
        elif says[0] and launched[tag] != 1:
            yield f"{tag} says that it was launched, and that happened {launched[tag]} times"
        elif f"measured {tag}" not in outcome.output:
            yield f"{tag} has measured nothing: {outcome.output!r}"


def effects_happen_once(evidence: Evidence) -> Iterator[str]:
    begun = Counter(it["tag"] for it in evidence.effects if it["kind"] == "launch")
    for tag, times in begun.items():
        if times > 1:
            yield f"{tag} was launched {times} times"
    keys: dict[str, set[str]] = {}
    for line in evidence.effects:
        if line["kind"] == "measure":
            keys.setdefault(line["tag"], set()).add(line["key"])
    for tag, used in keys.items():
        if len(used) > 1:
            yield f"{tag} was measured with {len(used)} keys"


def calls_of_live_workers_are_not_broken_off(evidence: Evidence) -> Iterator[str]:
    """Only a worker that was silent for longer than its lease loses its calls."""
    ran = {
        evidence.tags[it.task]: it.worker
        for it in reversed(evidence.facts(CallPlaced))
        if it.worker
    }
    for fact in evidence.facts(TaskSettled):
        tag = evidence.tags[fact.task]
        if BROKEN_OFF not in fact.outcome.output:
            continue
        process = evidence.workers[int(ran[tag].rsplit("-", 2)[1])]
        if not process.is_disturbed and silence_of(process, evidence) < WORKER_LEASE:
            yield f"{tag} was broken off, and its worker {process.name} was alive"


def silence_of(process: Process, evidence: Evidence) -> float:
    """Return the longest time for which nothing was heard of a worker."""
    beats = [
        it.at for it in evidence.changes if it.process == process.name and it.table == "workers"
    ]
    return max((after - before for before, after in itertools.pairwise(beats)), default=0.0)


def mail_is_read_once(evidence: Evidence) -> Iterator[str]:
    """The message is there once, each turn has one reply, and each detached task is told once."""
    said = [it.text for it in evidence.facts(MessageReceived)]
    if len(said) != 1:
        yield f"the message is there {len(said)} times"
    ended = Counter(it.turn for it in evidence.facts(TurnEnded))
    delivered = Counter(it.turn for it in evidence.facts(ReplyDelivered))
    for turn, times in ended.items():
        if times != 1 or delivered[turn] != 1:
            yield f"turn {turn} ended {times} times, and was delivered {delivered[turn]} times"
    texts: dict[int, set[str]] = {}
    for line in evidence.receipts:
        if line["kind"] == "reply":
            texts.setdefault(line["turn"], set()).add(line["text"])
    for turn in ended:
        if len(texts.get(turn, ())) != 1:
            yield f"turn {turn} has replied {sorted(texts.get(turn, ()))}"
    told = Counter(
        label
        for line in [it for it in evidence.requests if it["tag"] == said[0]][-1:]
        for _, label in line["told"]
    )
    wanted = Counter(["shop", *(f"detached-{number}" for number in range(DETACHED))])
    if told != wanted:
        yield f"the session was told {told - wanted} too often, and {wanted - told} never"


def budget_holds(evidence: Evidence) -> Iterator[str]:
    """The models below the shop were asked no more often than its budget allows."""
    asked = sum(it["tag"].startswith("buy") or it["tag"] == "shop" for it in evidence.requests)
    if asked > SHOP_CALLS:
        yield f"{asked} requests below the shop, of {SHOP_CALLS}"


LAWS: Final[Sequence[Law]] = (
    journal_is_sound,
    fenced_writers_change_nothing,
    tasks_are_done_once,
    effects_happen_once,
    calls_of_live_workers_are_not_broken_off,
    mail_is_read_once,
    budget_holds,
)
