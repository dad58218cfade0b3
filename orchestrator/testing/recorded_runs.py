"""A plug-in for pytest: replays recorded runs with the code of now, and scores them, without a key.

    pytest -p orchestrator.testing.recorded_runs --orchestrator-journals recorded/

It is not registered as an entry point: pytest would rewrite the assertions of the whole library.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import attrs
import pytest
import trio

from orchestrator.agents import Agent, is_agent
from orchestrator.backends import journals_at
from orchestrator.products.evaluation.recorded import read_results
from orchestrator.products.evaluation.scorers import Score, Scorer, as_scorer
from orchestrator.products.evaluation.task_result import TaskResult
from orchestrator.products.history.replay.record import ReplayError
from orchestrator.products.history.replay.run import replay_sync

_SCORER: Final = re.compile(r"([\w.]+:\w+)(?:\s*>=\s*(\d+(?:\.\d+)?))?")


@attrs.frozen
class _Bound:
    scorer: Scorer
    least: float
    """The lowest score that passes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("orchestrator")
    group.addoption(
        "--orchestrator-journals",
        metavar="DIR",
        help="Replay and score the runs of this journal, or of this folder of journals.",
    )
    parser.addini("orchestrator_agents", "The agents of the runs: module:name.", type="linelist")
    parser.addini(
        "orchestrator_scorers",
        "Scorers of the runs: module:name, or module:name >= 0.8; by default 0.5 passes.",
        type="linelist",
    )


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add a test for each recorded run of a known agent."""
    journal: str | None = config.getoption("--orchestrator-journals")
    if journal is not None:
        items += _items_of(session, Path(journal), config)


def _items_of(session: pytest.Session, journal: Path, config: pytest.Config) -> list[pytest.Item]:
    agents = {it.name: it for it in map(_agent, config.getini("orchestrator_agents"))}
    bounds = [_bound(it) for it in config.getini("orchestrator_scorers")]
    if not agents:
        raise pytest.UsageError("orchestrator_agents names no agent: write module:name into it")
    if not journal.exists():
        raise pytest.UsageError(f"--orchestrator-journals: there is no {journal}")
    # pytest does not type its factory.
    make = cast("Any", RecordedRunItem).from_parent
    found: list[pytest.Item] = [
        make(
            session,
            name=f"{result.agent}[{result.session.id}]",
            result=attrs.evolve(result, root_agent=agents[result.agent]),
            journal=journal,
            bounds=bounds,
        )
        for result in read_results(_journals(journal))
        if result.agent in agents
    ]
    if not found:
        raise pytest.UsageError(f"{journal} has no run of {', '.join(agents)}")
    return found


class RecordedRunItem(pytest.Item):
    """Replays one run, and scores it."""

    def __init__(
        self, *, result: TaskResult, journal: Path, bounds: Sequence[_Bound], **others: Any
    ) -> None:
        super().__init__(**others)  # pyright: ignore[reportUnknownMemberType]
        self._result = result
        self._journal = journal
        self._bounds = bounds

    def runtest(self) -> None:
        """Fail at the first step that differs from the record, and at a score that is too low."""
        run, agent = self._result.session.id, self._result.root_agent
        assert agent is not None, "only runs of known agents are collected"
        journals = _journals(self._journal)
        name = journals.find(run)
        assert name is not None, "the run was just read"
        with journals.store(name).open_reader() as reader:
            entries = reader.entries(run)
        try:
            difference = replay_sync(entries, agent, run=run).difference
        except ReplayError as exc:
            raise RecordedRunError(f"it cannot be replayed: {exc}") from exc
        if difference is not None:
            raise RecordedRunError(f"it differs from its record at {difference}")
        for bound in self._bounds:
            for score_name, score in trio.run(_score, bound.scorer, self._result).items():
                self.user_properties.append((score_name, score.value))
                if score.value < bound.least:
                    raise RecordedRunError(
                        f"{score_name} is {score.value:.4g}, and must be at least {bound.least:.4g}"
                        + (f": {score.reason}" if score.reason else "")
                    )

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return the difference or the low score; the traceback of any other error."""
        if isinstance(excinfo.value, RecordedRunError):
            return f"run {self._result.session.id} of {self._result.agent}: {excinfo.value}"
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the journal and the name of the test."""
        return self._journal, None, self.name


class RecordedRunError(AssertionError):
    """A recorded run differs, or scores too low."""


async def _score(scorer: Scorer, result: TaskResult) -> Mapping[str, Score]:
    return await scorer.score(result, _refuse)


def _refuse(judge: Agent[Any], goal: str) -> Any:
    raise pytest.UsageError(f"{judge.name} asks a model: recorded runs are scored without ({goal})")


def _journals(journal: Path) -> Any:
    return journals_at(f"{journal}/" if journal.is_dir() else str(journal))


def _agent(name: str) -> Agent[Any]:
    found = _named(name)
    if not is_agent(found):
        raise pytest.UsageError(f"orchestrator_agents: {name} is not an agent")
    return found


def _bound(text: str) -> _Bound:
    found = _SCORER.fullmatch(text.strip())
    if found is None:
        raise pytest.UsageError(f"orchestrator_scorers: {text!r} is not module:name >= 0.8")
    scorer = as_scorer(_named(found[1]))
    if scorer.needs_model:
        raise pytest.UsageError(f"orchestrator_scorers: {found[1]} asks a model")
    return _Bound(scorer, float(found[2] or 0.5))


def _named(name: str) -> Any:
    module, _, variable = name.strip().partition(":")
    try:
        return getattr(import_module(module), variable)
    except (ImportError, AttributeError) as exc:
        raise pytest.UsageError(f"{name}: {exc}") from exc
