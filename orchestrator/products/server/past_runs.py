"""Large runs of the past, read in a process of their own.

A thread would not do: decoding, collecting and freeing the records of 100,000 tasks holds the
interpreter for tenths of a second, and meanwhile no client is answered. One process answers all
identical questions of the same time, and ends when no asker is left.
"""

import subprocess
from collections.abc import Hashable
from pathlib import Path
from typing import Final

import attrs
import msgspec
import trio

from orchestrator.agents.interpreter import run_in_interpreter
from orchestrator.backends import store_at
from orchestrator.delegation import Rules, SessionId
from orchestrator.ports.journals import fold_entries
from orchestrator.ports.reads import ReadApi
from orchestrator.products.history.ports import Format, export_tree, html_report
from orchestrator.products.server.api.bodies import run_of
from orchestrator.products.server.console.rows import all_rows

LARGE_FACTS: Final = 10_000
"""A run with more facts is read elsewhere: a thread folds this many in 50 ms."""
PROCESSES: Final = 2


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a run."""

    journal: str
    run: str
    rules: dict[str, int | None]
    seq: int = 0
    """The number of the last fact of the journal."""
    tree: Format | None = None
    """The format of a tree to return; None for the run itself."""
    rows: bool = False
    """Return rows for the console instead."""


class _SharedAnswer:
    """An answer that several tasks wait for."""

    def __init__(self) -> None:
        self.waiting = 0
        self.given = trio.Event()
        self.body: bytes | None = None
        """None if the process failed, or could not be started."""
        self.scope = trio.CancelScope()


class PastRuns:
    """Asks other processes about runs that are not in memory."""

    def __init__(self, read: ReadApi, nursery: trio.Nursery) -> None:
        """Ask about runs that `read` does not have in memory; `nursery` owns the waits."""
        self._read = read
        self._nursery = nursery
        self._answers: dict[Hashable, _SharedAnswer] = {}
        self._limiter = trio.CapacityLimiter(PROCESSES)

    async def ask(
        self, run: str, *, tree: Format | None = None, rows: bool = False
    ) -> bytes | None:
        """Return the answer about a large run at rest, b"" if deleted; None: read it here."""
        journal = await self._read.file_of_large_session(run, facts=LARGE_FACTS)
        if journal is None:
            return None
        question = Question(
            journal=str(journal),
            run=run,
            rules=attrs.asdict(self._read.records.rules),
            seq=self._read.last_seq,
            tree=tree,
            rows=rows,
        )
        # A run that is not in memory does not change: later askers get the same answer.
        answer = self._answers.get(_key(question))
        if answer is None:
            answer = self._answers[_key(question)] = _SharedAnswer()
            self._nursery.start_soon(self._answer, question, answer)
        answer.waiting += 1
        try:
            await answer.given.wait()
        finally:
            answer.waiting -= 1
            if not answer.waiting:
                answer.scope.cancel(reason="all that asked are gone")
                self._forget(question, answer)
        return answer.body

    async def _answer(  # noqa: ASYNC910 (its scope absorbs a cancellation)
        self, question: Question, answer: _SharedAnswer
    ) -> None:
        try:
            with answer.scope:
                async with self._limiter:
                    request = msgspec.json.encode(question)
                    answer.body = await run_in_interpreter(answer_question, request)
        except (OSError, subprocess.CalledProcessError):
            answer.body = None  # it is read here, which reports the error
        finally:
            answer.given.set()
            self._forget(question, answer)

    def _forget(self, question: Question, answer: _SharedAnswer) -> None:
        if self._answers.get(_key(question)) is answer:
            del self._answers[_key(question)]


def _key(question: Question) -> Hashable:
    """Return a key that identical questions share."""
    return question.run, question.tree, question.rows


def answer_question(request: bytes) -> bytes:
    """Answer a question about a run, in the other process."""
    question = msgspec.json.decode(request, type=Question)
    path, run = Path(question.journal), SessionId(question.run)
    with store_at(path).open_reader(verify=False) as reader:
        entries = reader.entries(run)
    rules = msgspec.convert(question.rules, Rules)
    ledger = fold_entries(entries, path, rules)
    session = ledger.sessions.get(run)
    if session is None or session.deleted:
        return b""
    if question.rows:
        return msgspec.json.encode(all_rows(session, ledger))
    if question.tree == "html":
        return html_report(run, entries, has_writer=True)[0].encode()
    if question.tree is None:
        return msgspec.json.encode(run_of(session, ledger, seq=question.seq))
    return export_tree(session.tree, question.tree, now=None).encode()
