"""The answers of earlier tasks, which a simulation draws instead of made-up ones."""

import time
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from orchestrator.agents import Agent, Usage
from orchestrator.delegation import Ledger
from orchestrator.ports.errors import JournalError
from orchestrator.ports.execution import reachable_agents
from orchestrator.ports.journals import Journals, fold_entries

SESSIONS: Final = 20
"""How many of the newest sessions are read."""
ANSWERS: Final = 50
"""The most answers of one agent."""
SECONDS: Final = 0.5
"""After this time no further session is read."""


class PastAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer of a task that succeeded."""

    text: str
    seconds: float
    usage: Usage
    """The usage of the task and of all tasks below it."""


def read_past_answers(journals: Journals | None, agent: Agent[Any]) -> dict[str, list[PastAnswer]]:
    """Return the newest answers of all agents that an agent may delegate to, by their names.

    A session that cannot be read has none.
    """
    agents = {it.name for it in reachable_agents(agent)}
    found: dict[str, list[PastAnswer]] = {}
    if journals is None or not journals.names():
        return found
    begun = time.monotonic()
    for session in reversed(journals.sessions(newest=SESSIONS).sessions):
        if time.monotonic() - begun > SECONDS:
            break
        try:
            with journals.store(session.journal).open_reader() as reader:
                ledger = fold_entries(reader.entries(session.id), session.journal)
        except JournalError:
            continue
        for name, answer in _answers_in(ledger, agents):
            known = found.setdefault(name, [])
            if len(known) < ANSWERS:
                known.append(answer)
    return found


def _answers_in(ledger: Ledger, agents: Collection[str]) -> Iterator[tuple[str, PastAnswer]]:
    for task, record in ledger.tasks.items():
        outcome = record.outcome
        if outcome is None or not outcome.succeeded or record.agent not in agents:
            continue
        node = ledger.sessions[record.session].tree[task]
        # A cost that is not known would count as none.
        if (seconds := node.seconds()) is not None and not node.total.unpriced:
            yield record.agent, PastAnswer(outcome.output, seconds, node.total)
