"""Coordination metrics of a run, computed from its facts without a model.

The names and ideas are from "Towards a Science of Scaling Agent Systems" (arXiv 2512.08296) and
MAST (arXiv 2503.13657). `docs/evaluation.md` has the formulas.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from orchestrator.delegation import Cause, Ending, TaskId, events, root_of
from orchestrator.products.history.replay.record import DELEGATION_TOOLS

COORDINATION_TOOLS: Final = DELEGATION_TOOLS | {"ask_parent", "run_script"}
"""The tools that let agents work together."""
CUT_SHORT: Final = frozenset({Ending.OVER_BUDGET, Ending.TIMED_OUT})
WORD: Final = re.compile(r"\w+")
SHOWN: Final = 3


class Coordination(msgspec.Struct, frozen=True, kw_only=True):
    """How the agents of one run worked together. None is a metric without any data."""

    calls: int
    """The answers of models."""
    single_agent_calls: int
    """The estimated answers that one agent would need: one for each answer with a call of another
    tool than delegation, and one final answer."""
    messages: int
    """The requests, the results, the steering messages and the questions between agents."""
    redundancy: float | None
    """The mean similarity of the answers of siblings: 0 have no word in common, 1 are equal."""
    error_origins: int
    """The unsuccessful tasks without an unsuccessful child or dependency."""
    unsuccessful: int
    repeated_steps: int
    """The calls with the tool and the arguments of an earlier call of the same task."""
    steps: int
    """All calls of tools."""
    premature_ends: tuple[str, ...]
    """The paths of tasks that a budget or a time limit ended, whose answer is empty, or that ended
    before a task that they had delegated."""

    @property
    def overhead(self) -> float:
        """How many more model answers the run had than one agent would need: 2.0 is 200 % more."""
        return self.calls / self.single_agent_calls - 1

    @property
    def messages_per_answer(self) -> float:
        return self.messages / self.calls if self.calls else 0.0

    @property
    def error_amplification(self) -> float | None:
        """How many tasks one error made unsuccessful, on average; 1 is no other task."""
        return self.unsuccessful / self.error_origins if self.error_origins else None

    def lines(self) -> list[str]:
        """Return the metrics for people, one a line."""
        found = [
            f"overhead {self.overhead:+.0%} ({self.calls:,} model answers, one agent needs about"
            f" {self.single_agent_calls:,})",
            f"messages {self.messages_per_answer:.2f} per answer",
        ]
        if self.redundancy is not None:
            found.append(f"redundancy {self.redundancy:.2f} between siblings")
        if (amplification := self.error_amplification) is not None:
            found.append(f"errors {self.error_origins:,}, amplified {amplification:.1f}x")
        if self.repeated_steps:
            found.append(f"repeated {self.repeated_steps:,} of {self.steps:,} tool calls")
        if self.premature_ends:
            more = len(self.premature_ends) - SHOWN
            names = [*self.premature_ends[:SHOWN], *([f"{more:,} more"] if more > 0 else ())]
            found.append(f"premature ends: {', '.join(names)}")
        return found


def coordination(entries: Iterable[events.Entry]) -> Coordination:
    """Return the metrics of the run that has these entries."""
    facts = _Facts()
    for entry in events.in_parts(list(entries)):
        facts.add(entry.event)
    origins = [it for it in facts.unsuccessful if not (facts.blamed.get(it, set()) & facts.failed)]
    return Coordination(
        calls=facts.calls,
        single_agent_calls=facts.work_calls + 1,
        messages=facts.messages,
        redundancy=_redundancy(facts),
        error_origins=len(origins),
        unsuccessful=len(facts.unsuccessful),
        repeated_steps=sum(it - 1 for it in facts.steps.values()),
        steps=facts.steps.total(),
        premature_ends=tuple(facts.path(it) for it in facts.premature),
    )


class _Facts:
    """Counts the facts of a run."""

    def __init__(self) -> None:
        self.calls = self.work_calls = self.messages = 0
        self.steps: Counter[tuple[TaskId, str, bytes]] = Counter()
        self.parents: dict[TaskId, TaskId] = {}
        self.paths: dict[TaskId, str] = {}
        self.numbers: Counter[tuple[TaskId, str]] = Counter()
        self.blamed: dict[TaskId, set[TaskId]] = {}
        """The children and dependencies of each task."""
        self.answers: dict[TaskId, str] = {}
        """The answers of delegated tasks that have succeeded."""
        self.failed: set[TaskId] = set()
        self.unsuccessful: list[TaskId] = []
        self.premature: dict[TaskId, None] = {}
        self.left: set[TaskId] = set()
        """The tasks that ended before a task that they had delegated."""

    def add(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened(session=session, agent=agent):
                self.paths[root_of(session)] = f"/{agent}"
            case events.TaskRequested(request):
                self.messages += 1
                parent, id_ = request.parent, request.id
                self.parents[id_] = parent
                self.numbers[parent, request.agent] += 1
                number = self.numbers[parent, request.agent]
                self.paths[id_] = f"{self.path(parent)}/{request.agent}[{number}]"
                self.blamed.setdefault(parent, set()).add(id_)
                self.blamed.setdefault(id_, set()).update(request.needs)
            case events.ModelAnswered(task, message):
                self.calls += 1
                names = [call.name for call in message.calls]
                self.work_calls += any(it not in COORDINATION_TOOLS for it in names)
                self.messages += names.count("ask_parent") * 2
                for call in message.calls:
                    arguments = msgspec.json.encode(call.arguments, order="deterministic")
                    self.steps[task, call.name, arguments] += 1
            case events.Steered():
                self.messages += 1
            case events.TaskSettled(task, outcome):
                self.messages += 1
                if outcome.cause is Cause.ENDED_FIRST:
                    self.left.add(self.parents[task])
                self._end(task, outcome.ending, outcome.output)
            case events.TurnEnded(session=session, outcome=outcome):
                self._end(root_of(session), outcome.ending, outcome.output)
            case _:
                pass

    def _end(self, task: TaskId, ending: Ending, output: str) -> None:
        is_success = ending is Ending.SUCCEEDED
        if is_success and task in self.parents:
            self.answers[task] = output
        elif not is_success and task not in self.failed:
            self.failed.add(task)
            self.unsuccessful.append(task)
        if ending in CUT_SHORT or (is_success and (task in self.left or not output.strip())):
            self.premature[task] = None

    def path(self, task: TaskId) -> str:
        return self.paths.get(task, str(task))


def _redundancy(facts: _Facts) -> float | None:
    """Return the mean cosine similarity of the words of siblings, over all pairs."""
    siblings: dict[TaskId, list[str]] = {}
    for task, answer in facts.answers.items():
        siblings.setdefault(facts.parents[task], []).append(answer)
    total = pairs = 0.0
    for answers in siblings.values():
        found, count = _similarities(answers)
        total, pairs = total + found, pairs + count
    return total / pairs if pairs else None


def _similarities(answers: Sequence[str]) -> tuple[float, int]:
    """Return the sum of the similarities of all pairs of texts, and the number of pairs.

    The sum of all unit vectors has the square length n + 2 * (the sum over pairs).
    """
    together: dict[str, float] = {}
    count = 0
    for answer in answers:
        words = Counter(WORD.findall(answer.lower()))
        length = math.sqrt(sum(it * it for it in words.values()))
        count += bool(length)
        for word, number in words.items():
            together[word] = together.get(word, 0.0) + number / length
    squares = math.fsum(it * it for it in together.values())
    return max(0.0, squares - count) / 2, count * (count - 1) // 2
