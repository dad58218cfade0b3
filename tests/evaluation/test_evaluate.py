"""Evaluations of scripted teams: scores, budgets, crashes, sweeps and comparisons."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from orchestrator import (
    Agent,
    DefinitionError,
    Ending,
    ScriptedModel,
    Transcript,
    agent,
    delegate,
    open_orchestrator,
)
from orchestrator.backends import journals_at
from orchestrator.delegation.events import TurnEnded
from orchestrator.evaluation import (
    Case,
    EvaluationReport,
    Score,
    TaskResult,
    each_task,
    evaluate,
    judge,
    read_cases,
)
from orchestrator.models import Price
from orchestrator.products.evaluation.page import page_of
from orchestrator.products.evaluation.plots import pareto_front
from orchestrator.products.evaluation.recorded import read_trials
from orchestrator.testing import CountingModel, GatedModel, Harness, hand_on

CASES = [Case(name=f"word {it}", inputs=f"w{it}", expected_output=f"W{it}") for it in range(8)]


def shouting(knows: int, *, price: float = 100) -> CountingModel:
    """Return a model that knows some of every four words."""

    def answer(transcript: Transcript) -> str:
        word = transcript[-1].text
        return word.upper() if int(word[1:]) % 4 < knows else word

    return CountingModel(ScriptedModel.always(answer, price=Price(input=price, output=price)))


def team(model: Any, instructions: str = "") -> Agent:
    return Agent("team", model=model, instructions=instructions)


async def run(
    harness: Harness, agents: Any, cases: Sequence[Case] = CASES, **options: Any
) -> EvaluationReport:
    async with harness.open() as orchestrator:
        return await evaluate(orchestrator, agents, cases, **options)


@pytest.mark.parametrize(
    ("seconds", "is_compared"), [(0.05, False), (5, True)], ids=["quick", "slow"]
)
async def test_only_slow_runs_are_compared_by_their_time(seconds: float, is_compared: bool) -> None:
    def answering(after: float) -> Agent:
        return team(ScriptedModel.always("W", after), f"in {after} seconds")

    report = await run(Harness(), {"a": answering(seconds), "b": answering(seconds / 2)})
    [compared] = report.comparisons
    assert ("50 % faster" in compared.sentence) is is_compared


async def test_a_version_that_is_better_and_cheaper_is_called_so() -> None:
    versions = {"a": team(shouting(1), "worse."), "b": team(shouting(4, price=60), "better")}
    report = await run(Harness(), versions)
    [compared] = report.comparisons
    assert compared.verdict == "better"
    assert compared.sentence.startswith("b is better (+0.75, 95 % interval +0.")
    assert "40 % cheaper" in compared.sentence
    assert compared.passed == (0, 6)
    assert [it.case.name for it in compared.changes[-2:]] == ["word 0", "word 4"]


async def test_equal_versions_show_no_difference_and_the_pairs_that_would() -> None:
    versions = {"a": team(shouting(2)), "b": team(shouting(2), "other words")}
    [compared] = (await run(Harness(), versions)).comparisons
    assert compared.verdict == "no difference seen"
    assert compared.sentence.startswith("b: no difference seen with 8 pairs")

    def other(transcript: Transcript) -> str:
        word = transcript[-1].text
        return word.upper() if int(word[1:]) % 4 in {2, 3} else word

    versions = {"a": team(shouting(2)), "b": team(ScriptedModel.always(other), "others")}
    [compared] = (await run(Harness(), versions)).comparisons
    assert "detecting 5 points needs 3,589 (power 80 %)" in compared.sentence


async def test_a_second_evaluation_asks_no_model_again() -> None:
    harness, model, judging = Harness(), shouting(4), verdict(0.5)
    scorers = [judge("Is it loud?", model=judging, name="loud")]
    first = await run(harness, team(model), scorers=scorers, repeat=2)
    again = await run(harness, team(model), scorers=scorers, repeat=2)
    assert (model.calls, judging.calls) == (16, 16)
    assert again.to_json() == first.to_json()
    assert again.versions[0].mean("loud") == 0.5
    harness.assert_laws()


async def test_a_changed_team_runs_again() -> None:
    harness, model = Harness(), shouting(4)
    await run(harness, {"a": team(model)})
    await run(harness, {"a": team(model, "new instructions")})
    assert model.calls == 16


def verdict(score: float) -> CountingModel:
    text = f'{{"reason": "so", "score": {score}}}'
    return CountingModel(ScriptedModel.always(text, price=Price(input=1, output=1)))


async def test_a_sweep_that_is_killed_nine_times_pays_as_much_as_an_uninterrupted_one() -> None:
    whole = Harness()
    models = shouting(1), shouting(4)
    options: dict[str, Any] = {"usd": 1, "limit": 1, "repeat": 2}

    def versions(models: tuple[CountingModel, CountingModel]) -> dict[str, Agent]:
        return {"a": team(models[0]), "b": team(models[1], "b")}

    expected = await run(whole, versions(models), **options)
    calls = [it.calls for it in models]

    harness = Harness()
    models = shouting(1), shouting(4)
    trial, rest = divmod(len(whole.entries) - 1, len(CASES) * 2)
    assert rest == 0, "each trial has as many facts"
    for kill in range(9):
        # An answer that is not durable yet is asked for again: the process dies between two calls.
        after = len(harness.entries) + 1 + trial * (1 + kill % 2)
        async with harness.open(crash_after=after) as orchestrator:
            await evaluate(orchestrator, versions(models), CASES, **options)
    found = await run(harness, versions(models), **options)
    assert [it.calls for it in models] == calls
    assert found.paid == expected.paid > 0
    assert [it.score for it in found.comparisons] == [it.score for it in expected.comparisons]
    harness.assert_laws()


async def test_a_budget_ends_an_evaluation_and_a_larger_one_continues_it() -> None:
    def reading() -> CountingModel:
        # Its answers cost nothing, so the price of a call is known before the call.
        price = Price(input=100_000, output=0)
        return CountingModel(ScriptedModel.always(lambda said: said[-1].text, price=price))

    harness, model = Harness(), reading()
    one = (await run(Harness(), team(reading()), CASES[:1])).paid
    report = await run(harness, team(model), usd=one * 3.5, limit=1)
    assert report.missing == 5
    assert 0 < report.paid <= one * 3.5
    assert len(report.versions[0].trials) == 3
    calls = model.calls
    # Earlier payments count: the larger budget pays for the other five alone.
    report = await run(harness, team(model), usd=one * 8, limit=1)
    assert report.missing == 0
    assert len(report.versions[0].trials) == 8
    assert report.paid == pytest.approx(one * 8)
    assert model.calls - calls == 5


async def test_a_run_that_was_cancelled_with_its_process_runs_again() -> None:
    harness, gate = Harness(), GatedModel("W0")
    async with harness.open() as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(evaluate, orchestrator, team(gate), CASES[:1])
            await gate.wait_called(1)
            nursery.cancel_scope.cancel(reason="the user stops it")
    gate.release()
    report = await run(harness, team(gate), CASES[:1])
    assert report.versions[0].mean("score") == 1
    assert [it.outcome.ending for it in harness.facts(TurnEnded)] == [
        Ending.CANCELLED,
        Ending.SUCCEEDED,
    ]


async def test_a_version_that_clearly_differs_runs_no_further_rounds() -> None:
    models = [shouting(1), shouting(4), shouting(1)]
    names = ("a", "better", "same")
    versions = {name: team(it, name) for name, it in zip(names, models, strict=True)}
    await run(Harness(), versions, repeat=3)
    assert [it.calls for it in models] == [24, 8, 24]


async def test_scorers_of_steps_score_each_task_of_an_agent() -> None:
    def cites(task: TaskResult) -> Score:
        return Score(float("http" in task.answer), task.path)

    researcher = Agent(
        "researcher",
        model=ScriptedModel.always(lambda said: "http://a" if "1" in said[0].text else "none"),
    )
    lead = Agent(
        "lead", model=ScriptedModel([hand_on("find 1", "find 2"), "Done."]), delegates=[researcher]
    )
    report = await run(
        Harness(), lead, [Case(name="one", inputs="go")], scorers=[each_task("researcher", cites)]
    )
    [trial] = report.versions[0].trials
    assert trial.scores["cites"] == Score(0.5, "/lead/researcher[2]")
    assert [it.goal for it in trial.result.tasks("researcher")] == ["find 1", "find 2"]
    assert len(trial.result.tree) == 3


async def test_a_failed_run_is_an_error_and_no_score_of_zero() -> None:
    broken = Agent("team", model=ScriptedModel(["W0"]))
    cases = CASES[:2]
    report = await run(Harness(), broken, cases, limit=1, checks=["score>=1", "errors<=0"])
    [version] = report.versions
    assert version.errors == 1
    assert version.mean("score") == 1
    assert [it.passes for it in report.checks] == [True, False]
    assert "✗" in report.to_markdown()
    assert "<error" in report.to_junit()


async def test_the_page_escapes_texts_of_models_and_has_no_script() -> None:
    rude = ScriptedModel.always("<script>alert(1)</script>", price=Price(input=100))
    versions = {"<b>": team(shouting(1)), "rude": team(rude, "rude")}
    page = page_of(await run(Harness(), versions))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "A &lt;b&gt;" in page
    assert page.count("<details>") == 8
    assert "Pareto front" in page


def test_the_pareto_front_has_the_points_that_no_other_beats() -> None:
    points = [(3.0, 0.9), (1.0, 0.5), (2.0, 0.4), (1.0, 0.6), (2.5, 0.8)]
    assert pareto_front(points) == [(1.0, 0.6), (2.5, 0.8), (3.0, 0.9)]


async def test_a_scorer_that_raises_is_an_error_of_its_trial() -> None:
    def wrong(result: TaskResult) -> bool:
        return bool(result.answer[100])

    report = await run(Harness(), team(shouting(4)), CASES[:1], scorers=[wrong])
    [trial] = report.versions[0].trials
    assert trial.error.startswith("wrong raised IndexError")


async def test_a_score_that_is_not_a_number_is_an_error_of_its_trial() -> None:
    def mean_of_nothing(_: TaskResult) -> Score:
        return Score(float("nan"), "of nothing")

    report = await run(Harness(), team(shouting(4)), scorers=[mean_of_nothing])
    (version,) = report.versions
    assert version.errors == len(CASES)
    assert version.mean("score") is None


async def test_evaluators_of_a_dataset_and_a_judge_score_runs(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(
        """
name: words
cases:
- {name: one, inputs: w1, expected_output: W1}
- name: two
  inputs: w2
  evaluators:
  - Contains: W
evaluators:
- EqualsExpected
- IsInstance: str
- LLMJudge: {rubric: It is loud., include_input: true}
"""
    )
    judging = verdict(0.9)
    dataset = read_cases(file)
    async with Harness().open() as orchestrator:
        report = await evaluate(orchestrator, team(shouting(4)), dataset, judge_model=judging)
    one, two = report.versions[0].trials
    assert {name: it.value for name, it in one.scores.items()} == {
        "EqualsExpected": 1,
        "IsInstance": 1,
        "LLMJudge": 1,
    }
    assert two.scores["Contains"].is_pass
    assert (report.name, judging.calls) == ("words", 2)


class City(msgspec.Struct):
    name: str


@pytest.mark.realtime
async def test_a_baseline_of_typed_answers_is_scored_by_its_types(tmp_path: Path) -> None:
    def guide(city: str) -> Agent[City]:
        @agent
        async def look_up(country: City) -> City:
            del country
            return await delegate(asked, "go")

        asked = Agent("asked", model=ScriptedModel.always(f'{{"name": "{city}"}}'), output=City)
        return look_up

    file = tmp_path / "cases.yaml"
    rows = [{"inputs": {"name": f"a{it}"}, "expected_output": {"name": "Rome"}} for it in range(6)]
    file.write_text(json.dumps({"cases": rows, "evaluators": ["EqualsExpected"]}))
    dataset = read_cases(file)
    async with open_orchestrator(tmp_path / "a.db") as orchestrator:
        await evaluate(orchestrator, {"a": guide("Rome")}, dataset)
    earlier = read_trials(journals_at(str(tmp_path / "a.db")))
    async with open_orchestrator(tmp_path / "b.db") as orchestrator:
        report = await evaluate(orchestrator, {"b": guide("Oslo")}, dataset, baseline=earlier)
    assert report.baseline is not None
    assert (report.baseline.name, report.baseline.mean("score")) == ("a", 1)
    assert [it.verdict for it in report.comparisons] == ["worse"]


def test_wrong_cases_are_refused_with_their_place(tmp_path: Path) -> None:
    lines = tmp_path / "cases.jsonl"
    lines.write_text('{"inputs": "a"}\n{"input": "b"}\n')
    with pytest.raises(DefinitionError, match=r"cases.jsonl, line 2: .*unknown field"):
        read_cases(lines)
    lines.write_text('{"inputs": "a", "name": "one"}\n\n{"inputs": "a", "name": "two"}\n')
    with pytest.raises(DefinitionError, match="'one' and 'two' of cases have the same inputs"):
        read_cases(lines)
    wrong = tmp_path / "cases.yaml"
    wrong.write_text("cases: [{name: a}]")
    with pytest.raises(DefinitionError, match="is not a dataset of pydantic-evals"):
        read_cases(wrong)
