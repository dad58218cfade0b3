"""Runs the cases of an evaluation: in parallel, under one budget, and each once.

The id of each run is a digest of its version, case and repetition. After a crash the same call
finds the runs that have ended, continues the interrupted ones and starts the others, so no
finished step is paid for twice. The account of the budget is in the same journal.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, Protocol

import attrs
import msgspec
import trio

from orchestrator.agents import Agent, Budget, DefinitionError, raising_one_error
from orchestrator.delegation import SHARED_BUDGET_PREFIX, Ending, Grant, SessionId
from orchestrator.delegation.events.state_change import change_state
from orchestrator.ports.errors import NotInterruptedError
from orchestrator.ports.execution import fingerprint, reachable_agents
from orchestrator.ports.sessions import (
    InboundRequest,
    Orchestrator,
    Run,
    ended_run,
    goal_message,
    open_one_turn,
    take_only_turn,
    use_grants,
)
from orchestrator.products.evaluation.cases import Case
from orchestrator.products.evaluation.recorded import (
    NO_RESULTS,
    TRIAL_PREFIX,
    EvaluationState,
    Trial,
)
from orchestrator.products.evaluation.scorers import Ask, Score, Scorer
from orchestrator.products.evaluation.task_result import TaskResult, result_of_run

ACCOUNT: Final = f"{SHARED_BUDGET_PREFIX}evaluation-"


class Planned(msgspec.Struct, frozen=True):
    """One run that an evaluation needs."""

    version: str
    case: Case
    repeat: int


class Tell(Protocol):
    """Receives each trial when it has ended."""

    def __call__(self, trial: Trial) -> None: ...


def version_of(agent: Agent[Any]) -> str:
    """Return a digest of an agent and its whole team: their texts, tools, types and models."""
    parts = sorted(
        f"{it.name} {fingerprint(it)} {it.version} {_model_name(it)} {it.settings}"
        for it in reachable_agents(agent)
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


@attrs.define(kw_only=True)
class Evaluation:
    """The versions of a team that are evaluated in one journal, under one budget."""

    orchestrator: Orchestrator
    versions: Mapping[str, Agent[Any]]
    """The agents by the names of their versions."""
    scorers: Sequence[Scorer]
    usd: float | None = None
    """The most dollars for all runs and judges, the earlier processes of the set included."""
    deps: object = None
    dataset: str = ""
    """The name of the dataset, which its runs record."""
    evaluators: Callable[[Case], Sequence[Scorer]] = lambda _: ()
    """The scorers that one case has besides."""
    spent: str = attrs.field(default="", init=False)
    """How the budget has ended a run; empty if it has not."""

    @property
    def is_spent(self) -> bool:
        """Whether the budget has ended a run: no further run starts."""
        return bool(self.spent)

    async def run(self, planned: Iterable[Planned], *, limit: int, tell: Tell) -> list[Trial]:
        """Run trials, at most `limit` at once, and return them in their order.

        Trials that the budget leaves no money for are left out. Owns its nursery.
        """
        waiting = list(enumerate(planned))[::-1]
        found: dict[int, Trial] = {}

        async def work() -> None:
            await trio.lowlevel.checkpoint()
            while waiting and not self.is_spent:
                at, it = waiting.pop()
                trial = await self._run_trial(it)
                if trial is not None:
                    found[at] = trial
                    tell(trial)

        with self._budget(), raising_one_error():
            async with trio.open_nursery() as nursery:
                for _ in range(min(limit, len(waiting))):
                    nursery.start_soon(work)
        return [found[at] for at in sorted(found)]

    async def rescore(self, trials: Iterable[Trial], cases: Iterable[Case]) -> list[Trial]:
        """Return the trials of an earlier set on these cases, scored again; no model is asked."""
        current = {it.key: it for it in cases}
        agents = {it.name: it for it in self.versions.values()}
        found: list[Trial] = []
        for it in trials:
            case = current.get(it.case.key)
            if case is None:
                continue
            agent = agents.get(it.result.agent)
            result = attrs.evolve(it.result, case=case, root_agent=agent)
            scores, broken = dict(it.scores), it.broken
            if result.succeeded:
                again, broken = await self._score(case, result, _refuse, without_model=True)
                scores |= again
            found.append(attrs.evolve(it, case=case, result=result, scores=scores, broken=broken))
        return found  # noqa: ASYNC910 (each scorer waits where it has to)

    async def score_recorded(
        self, results: Iterable[TaskResult], version: str, *, tell: Tell
    ) -> list[Trial]:
        """Return the trials of recorded tasks: only judges ask a model."""
        found: list[Trial] = []
        with self._budget():
            for result in results:
                name = result.session.id if result.id == result.tree.root else result.path
                case = result.case or Case(name=name, inputs=[result.session.id, result.id])
                scores: Mapping[str, Score] = {}
                broken = ""
                if result.succeeded:
                    scores, broken = await self._score(case, result, self._asker(result))
                if self.is_spent:
                    break
                trial = Trial(
                    case=case,
                    version=version,
                    repeat=0,
                    result=result,
                    scores=scores,
                    broken=broken,
                )
                found.append(trial)
                tell(trial)
        return found  # noqa: ASYNC910 (each scorer waits where it has to)

    @property
    def paid(self) -> float:
        """The dollars that the set has cost so far, judges and earlier processes included."""
        accounts = self.orchestrator.read.records.accounts
        used = (it.used.micro_usd for id_, it in accounts.items() if id_.startswith(ACCOUNT))
        return sum(used) / 1_000_000

    def _budget(self) -> Any:
        if self.usd is None:
            return nullcontext()
        accounts = self.orchestrator.read.records.accounts
        id_ = f"{ACCOUNT}{self.usd:.6f}"
        # With another limit than before, earlier payments count.
        left = self.usd if id_ in accounts else self.usd - self.paid
        if left <= 0:
            raise DefinitionError(
                f"the set has cost ${self.paid:.4f} already, and its budget is ${self.usd}: give it"
                " a larger one"
            )
        return use_grants((Grant(id_, Budget(usd=left, name="evaluation")),))

    async def _run_trial(self, planned: Planned) -> Trial | None:
        case, version = planned.case, planned.version
        agent = self.versions[version]
        state = EvaluationState(
            case=case.key,
            name=case.name,
            dataset=self.dataset,
            expected=_json(case.expected_output),
            version=version,
            team=(team := version_of(agent)),
            repeat=planned.repeat,
        )
        key = run_id(TRIAL_PREFIX, team, version, case.key, planned.repeat)
        run = await self._run_once(agent, case.inputs, key, state)
        if run.outcome.ending is Ending.OVER_BUDGET and self._is_ours(run):
            self.spent = run.outcome.error
            return None
        found = await self.orchestrator.read.session(run.id)
        result = result_of_run(found.session, found.records.tasks, case=case, agent=agent)

        scores: Mapping[str, Score] = {}
        broken = ""
        if result.succeeded:
            scores, broken = await self._score(case, result, self._asker(result))
            if self.is_spent:
                return None
            kept = found.session.state(EvaluationState)
            if dict(kept.scores) != dict(scores) or kept.broken != broken:
                dropped = dict.fromkeys(kept.scores)
                changed = {**dropped, **scores}
                fact = change_state(run.id, EvaluationState, scores=changed, broken=broken)
                await self._post(run.id, fact)
        return Trial(
            case=case,
            version=version,
            repeat=planned.repeat,
            result=result,
            scores=scores,
            broken=broken,
        )

    async def _post(self, run: SessionId, fact: Any) -> None:
        facts = self.orchestrator.facts
        await facts.load(run)
        facts.post(fact)
        await facts.wait_durable()

    async def _score(
        self, case: Case, result: TaskResult, ask: Ask, *, without_model: bool = False
    ) -> tuple[dict[str, Score], str]:
        await trio.lowlevel.checkpoint()
        scores: dict[str, Score] = {}
        for scorer in (*self.scorers, *self.evaluators(case)):
            if without_model and scorer.needs_model:
                continue
            try:
                scores |= await scorer.score(result, ask)
            except _JudgeFailedError as exc:
                return {}, f"{scorer.name}: {exc}"
            except Exception as exc:  # a scorer is foreign code  # noqa: BLE001
                return {}, f"{scorer.name} raised {type(exc).__name__}: {exc}"
        return scores, ""

    def _asker(self, result: TaskResult) -> Ask:
        """Return the function that asks a judge about a result, once."""

        def ask(judge: Agent[Any], goal: str) -> Awaitable[Run[Any]]:
            state = EvaluationState(judged=result.id, name=result.path)
            key = run_id("j_", result.session.id, result.id, version_of(judge), goal)
            return self._run_once(judge, goal, key, state)

        return ask

    async def _run_once(
        self, agent: Agent[Any], goal: Any, key: str, state: EvaluationState
    ) -> Run[Any]:
        """Return the run with this key: the ended one, the interrupted one continued, or a new one.

        A run that an earlier, smaller budget ended does not count, nor one that ended with its
        process: it gets a successor.
        """
        sessions, read = self.orchestrator.sessions, self.orchestrator.read
        attempt = 0
        while True:
            id_ = SessionId(f"{key}-{attempt}")
            if id_ not in read.session_ids:
                request = InboundRequest(
                    agent=agent,
                    message=goal_message(agent, goal),
                    states=(state,),
                    deps=None if state.judged else self.deps,
                )
                session = open_one_turn(sessions, request, id_)
                end = await take_only_turn(sessions, session)
                run = ended_run(sessions, agent, session, end.outcome, end.error)
                break
            run = await self._earlier_run(agent, id_)
            if run.outcome.ending not in NO_RESULTS and not self._was_smaller(run):
                break
            attempt += 1
        if state.judged and not run.outcome.succeeded:
            if self._is_ours(run):
                self.spent = run.outcome.error
            raise _JudgeFailedError(f"the judge {run.outcome.ending}: {run.outcome.error}")
        return run

    async def _earlier_run(self, agent: Agent[Any], id_: SessionId) -> Run[Any]:
        found = await self.orchestrator.read.session(id_)
        if found.session.last_outcome is None:
            try:
                return await self.orchestrator.resume(agent, id_, deps=self.deps)
            except NotInterruptedError:
                found = await self.orchestrator.read.session(id_)
        outcome = found.session.last_outcome
        assert outcome is not None, "a run that cannot be resumed has ended"
        return ended_run(self.orchestrator.sessions, agent, found.session, outcome, None)

    def _is_ours(self, run: Run[Any]) -> bool:
        return run.outcome.account.startswith(ACCOUNT)

    def _was_smaller(self, run: Run[Any]) -> bool:
        if run.outcome.ending is not Ending.OVER_BUDGET:
            return False
        account = run.outcome.account
        current = "" if self.usd is None else f"{ACCOUNT}{self.usd:.6f}"
        return account.startswith(ACCOUNT) and account != current


def _refuse(judge: Agent[Any], goal: str) -> Awaitable[Run[Any]]:
    raise _JudgeFailedError(f"no model is asked about recorded runs: {judge.name}, {goal!r}")


class _JudgeFailedError(Exception):
    """A judge gave no verdict."""


def run_id(prefix: str, *parts: object) -> str:
    """Return the id of a run, without the number of its attempt."""
    encoded = msgspec.json.encode([str(part) for part in parts])
    return f"{prefix}{hashlib.blake2b(encoded, digest_size=10).hexdigest()}"


def _model_name(agent: Agent[Any]) -> str:
    model = getattr(agent, "model", "")
    return model if isinstance(model, str) else type(model).__name__


def _json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else value
