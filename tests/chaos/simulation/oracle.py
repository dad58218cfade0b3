"""The laws of a simulated round, checked against its clients, its tool and its database."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import trio

from orchestrator.backends import journals_at
from orchestrator.testing import laws_of
from tests.chaos.simulation.database import SimulatedPostgres

ORACLE_HOST = "oracle"


@attrs.define
class History:
    """The answers that clients got, and the effects of the tool."""

    runs: dict[str, str] = attrs.field(factory=dict[str, str])
    """The acknowledged runs, by their keys."""
    keys: set[str] = attrs.field(factory=set[str])
    """The keys of all requests that begin runs."""
    seen: dict[str, int] = attrs.field(factory=dict[str, int])
    """The newest fact of each run that a client has seen."""
    ends: dict[str, Any] = attrs.field(factory=dict[str, Any])
    """The runs at their end, by their keys."""
    payments: Counter[str] = attrs.field(factory=Counter[str])
    answers: Counter[int] = attrs.field(factory=Counter[int])
    problems: list[str] = attrs.field(factory=list[str])

    def note(self, problem: str) -> None:
        self.problems.append(f"at {trio.current_time():.2f}: {problem}")

    def acknowledge(self, key: str, run: str) -> None:
        if self.runs.setdefault(key, run) != run:
            self.note(f"{key} began {self.runs[key]} and {run}")

    def see(self, run: str, body: Any, known: int) -> None:
        """Note an answer; `known` is the newest fact seen before the request began."""
        seq = body["seq"]
        if seq < known:
            self.note(f"{run} was shown at fact {seq}, after fact {known} had been shown")
        self.seen[run] = max(seq, self.seen.get(run, 0))


async def find_problems(history: History, database: SimulatedPostgres) -> list[str]:
    """Return all that was wrong, one sentence each."""
    found = [*history.problems, *find_wrong_effects(history)]
    journals = journals_at(f"postgresql://simulated@{ORACLE_HOST}/simulated")
    database.recover()

    def read() -> list[str]:
        problems: list[str] = []
        listed = Counter(str(it.id) for it in journals.sessions().sessions)
        problems += [f"{run} is in {many} journals" for run, many in listed.items() if many != 1]
        for name in journals.names():
            with journals.store(name).open_reader() as reader:
                for session in reader.sessions():
                    problems += laws_of(reader.entries(session))
        for run in history.runs.values():
            if run not in listed:
                problems.append(f"{run} was acknowledged, and is in no journal")
        if len(listed) > len(history.keys):
            problems.append(f"{len(listed)} sessions for {len(history.keys)} keys")
        return problems

    return found + await trio.to_thread.run_sync(read)


def find_wrong_effects(history: History) -> Iterator[str]:
    """Yield the keys that were paid twice, or whose runs say something else than was done."""
    for key, times in history.payments.items():
        if times > 1:
            yield f"{key} was paid {times} times"
    for key, end in history.ends.items():
        if end["status"] != "completed":
            yield f"{key} ended as {end['status']}: {end.get('error')}"
        elif "paid" in str(end.get("output")) and history.payments[key] != 1:
            yield f"{key} says that it is paid, and was {history.payments[key]} times"
