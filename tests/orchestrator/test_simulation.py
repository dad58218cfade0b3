"""Simulation: the real orchestrator in virtual time, the same for a seed whatever trio shuffles."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio

from orchestrator.agents import (
    Agent,
    Budget,
    Compaction,
    DefinitionError,
    Limits,
    Model,
    Price,
    ScriptedModel,
    tool,
)
from orchestrator.cli.app import run_command
from orchestrator.delegation import Mode, Rules, TaskId, Tree
from orchestrator.delegation.events import ModelAnswered, ToolAnswered
from orchestrator.products.history.simulation.wait_chain import (
    OverlapCount,
    Wait,
    WaitInterval,
    column_means,
    longest_chain,
    overlap_counts,
)
from orchestrator.simulation import (
    Breadth,
    ProviderRate,
    Quantiles,
    SimulationSettings,
    estimate,
    simulate,
    simulate_once,
)
from orchestrator.testing import StreamingModel, assert_laws, assert_tree, facts
from tests.delegation.built_trees import add_task

ROOT = Path(__file__).parent.parent.parent


@tool
async def explode(fuse: str) -> str:
    """Do harm if it is ever run.

    Args:
        fuse: how long.
    """
    await trio.lowlevel.checkpoint()
    raise SystemExit(fuse)


def team(**options: Any) -> Agent:
    """Return three levels, with named models, a tool and a typed answer."""
    worker = Agent("worker", model="openai:gpt-5-mini", tools=[explode], **options)
    checker = Agent("checker", model="anthropic:nobody-knows", output=list[int])
    lead = Agent("lead", model="openai:gpt-5", delegates=[worker, checker])
    return Agent("editor", model="openai:gpt-5", delegates=[lead])


CROWDED = SimulationSettings(
    fan_out="4",
    failure_rate=0.2,
    rules=Rules(live_tasks=8, live_children=3),
    provider=ProviderRate(requests_per_minute=40, in_flight=6, tokens_per_minute=90_000),
    budget=Budget(tokens=60_000, calls=30),
    seeds=1,
    first_seed=5,
)
"""Settings that could make an order matter: limits, failures, a budget that runs out."""


def test_a_seed_gives_the_same_report_however_trio_shuffles() -> None:
    """Trio turns its run queue around at random: twenty runs see very many schedules."""
    agent = team(limits=Limits(seconds=25))
    reports = {simulate(agent, "go", CROWDED).to_json() for _ in range(20)}

    assert len(reports) == 1
    (report,) = map(msgspec.json.decode, reports)
    assert {"over_budget", "timed_out"} <= report["endings"].keys()
    assert all(report["shares"][it] > 0 for it in ("slots", "failures", "budget"))


def test_a_seed_gives_the_same_report_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "team.py"
    file.write_text(
        "from orchestrator.agents import Agent\n"
        "workers = [Agent(name, model='openai:gpt-5') for name in ('a', 'b', 'c')]\n"
        "editor = Agent('editor', model='openai:gpt-5-mini', delegates=workers)\n"
    )
    command = [sys.executable, "-m", "orchestrator", "simulate", f"{file}:editor"]
    options = ["--seeds", "5", "--failure-rate", "0.2", "--live-tasks", "2", "--json"]
    said = {
        subprocess.run(
            [*command, *options],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(said) == 1
    assert len(msgspec.json.decode(said.pop())["seeds"]) == 5


def test_another_seed_simulates_another_run() -> None:
    report = simulate(team(), "go", SimulationSettings(seeds=10))

    assert len({seed.makespan for seed in report.seeds}) == 10


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_simulated_tree_obeys_every_law(seed: int) -> None:
    run = simulate_once(team(), "go", CROWDED, seed=seed)

    assert_laws(run.entries, CROWDED.rules)
    assert run.peak_places <= 8
    # Of each provider.
    assert run.peak <= 2 * 6


def test_hundreds_of_agents_obey_every_law() -> None:
    settings = SimulationSettings(fan_out="8", failure_rate=0.05, rules=Rules(live_tasks=100))
    worker = Agent("worker", model="openai:gpt-5-mini")
    for name in ("lead", "editor", "chief"):
        worker = Agent(name, model="openai:gpt-5", delegates=[worker])
    run = simulate_once(worker, "go", settings, seed=1)

    assert run.tasks == 1 + 8 + 64 + 512
    assert run.peak_places == 100
    assert_laws(run.entries, settings.rules)


def test_agents_delegate_according_to_the_fan_out_and_leaves_answer() -> None:
    settings = SimulationSettings(fan_out="2,3", output_tokens=10)
    run = simulate_once(team(), "go", settings, seed=1)

    assert [run.tree[it].agent for it in run.tree.children(run.tree.root)] == (["lead"] * 2)
    assert run.tasks == 1 + 2 + 2 * 3
    assert run.outcome.succeeded


def test_delegates_take_turns_and_all_of_a_large_fan_out_are_asked() -> None:
    helpers = [Agent(name, model="a:b") for name in ("one", "two", "three")]
    lead = Agent("lead", model="a:b", delegates=helpers)
    settings = SimulationSettings(fan_out="150", output_tokens=10)
    run = simulate_once(lead, "go", settings, seed=1)
    names = [run.tree[it].agent for it in run.tree.children(run.tree.root)]

    assert sorted(names) == ["one"] * 50 + ["three"] * 50 + ["two"] * 50


def test_copies_are_handed_work_once() -> None:
    """A copy that copies itself again would never end."""
    agent = Agent("thinker", model="a:b", copies=True)
    run = simulate_once(agent, "go", SimulationSettings(fan_out=2), seed=1)

    assert_tree(
        run.tree,
        """
        thinker succeeded
          thinker[1] succeeded
          thinker[2] succeeded
        """,
    )


def test_tools_are_called_and_never_run() -> None:
    agent = Agent("worker", model="openai:gpt-5-mini", tools=[explode])
    settings = SimulationSettings(tool_seconds=100, spread=0)
    run = simulate_once(agent, "go", settings, seed=1)

    assert run.outcome.succeeded
    (answer,) = facts(run.entries, ToolAnswered)
    assert answer.message.text == "explode was simulated"
    assert run.waited[Wait.TOOL] == pytest.approx(100)


def test_a_simulation_never_calls_the_models_of_agents() -> None:
    agent = Agent("scripted", model=ScriptedModel([RuntimeError("asked")]))
    run = simulate_once(agent, "go", SimulationSettings(), seed=1)

    assert run.outcome.succeeded


def test_a_simulated_agent_answers_with_its_promised_type() -> None:
    """So pipelines that use the answer run through; a list is as long as the fan-out."""
    agent = Agent("planner", model="a:b", output=dict[str, int] | list[str])
    run = simulate_once(
        Agent("lister", model="a:b", output=list[str]), "go", SimulationSettings(fan_out=5), seed=1
    )
    other = simulate_once(agent, "go", SimulationSettings(), seed=1)

    assert msgspec.json.decode(run.outcome.output) == [f"text {n}" for n in range(1, 6)]
    assert other.outcome.succeeded


def test_a_transcript_that_grows_too_long_is_compacted_as_usual() -> None:
    helper = Agent("helper", model="a:b")
    agent = Agent(
        "lead",
        model="a:b",
        delegates=[helper],
        compaction=Compaction(window=8_000, keep_last=1, summarizer="a:small"),
    )
    settings = SimulationSettings(fan_out="20", output_tokens=500, spread=0)
    run = simulate_once(agent, "go", settings, seed=1)
    whole = simulate_once(attrs.evolve(agent, compaction=None), "go", settings, seed=1)

    assert run.outcome.succeeded
    assert run.tasks == 21
    own, read = (it.tree[it.tree.root].usage.input_tokens for it in (run, whole))
    assert own < read


def test_simulated_times_without_spread_are_exact() -> None:
    editor = Agent("editor", model="a:b", delegates=[Agent("worker", model="openai:gpt-5")])
    settings = SimulationSettings(model_seconds=10, output_tokens=100, spread=0, seeds=2)
    report = simulate(editor, "go", settings)

    # The question, the workers at the same time, the answer.
    assert report.makespan.p50 == pytest.approx(30, abs=0.1)
    assert report.mean.p50 == pytest.approx(50 / 30, abs=0.01)
    assert report.peak == Quantiles(min=3, p50=3, p95=3, max=3, mean=3)
    assert report.tasks.max == 4
    assert report.calls.max == 5


@pytest.mark.parametrize(
    ("limit", "settings"),
    [
        ("critical path", SimulationSettings(seeds=3)),
        ("slots", SimulationSettings(fan_out="12", rules=Rules(live_tasks=1), seeds=3)),
        (
            "provider rate",
            SimulationSettings(
                fan_out="40", provider=ProviderRate(requests_per_minute=10), seeds=3
            ),
        ),
        ("failures", SimulationSettings(failure_rate=0.5, model_seconds=1, seeds=3)),
        (
            "budget",
            SimulationSettings(
                fan_out="30",
                # Enough for one call that is as long as it may be, and not for two.
                budget=Budget(tokens=60_000),
                seeds=3,
            ),
        ),
    ],
)
def test_the_report_names_the_limiting_factor(limit: str, settings: SimulationSettings) -> None:
    worker = Agent("worker", model="openai:gpt-5-mini")
    editor = Agent("editor", model="openai:gpt-5", delegates=[worker])
    report = simulate(editor, "go", settings)

    assert report.limited_by == limit, report.shares
    assert report.sentence.startswith(f"{limit}: ")
    assert math.fsum(report.shares.values()) == pytest.approx(1, abs=0.01)


def test_the_chain_of_a_run_adds_up_to_its_makespan() -> None:
    for seed in range(1, 6):
        run = simulate_once(team(), "go", CROWDED, seed=seed)
        assert math.fsum(run.chain.values()) == pytest.approx(run.makespan)
        assert min(run.chain.values()) >= 0


def test_the_chain_follows_the_tasks_that_ended_last() -> None:
    """By hand: a root that asks two, of whom the slower one had waited for room."""
    tree = Tree(TaskId("root"))
    add_task(tree, TaskId("root"), parent=None, agent="r", path="/r", mode=Mode.ROOT, at=0.0)
    tree.start(TaskId("root"), 0.0)
    tree.end(TaskId("root"), 30.0, "")
    for name, started, ended in (("quick", 5.0, 9.0), ("slow", 12.0, 22.0)):
        add_task(
            tree,
            TaskId(name),
            parent=TaskId("root"),
            agent=name,
            path=f"/r/{name}",
            mode=Mode.JOINED,
            at=5.0,
        )
        tree.start(TaskId(name), started)
        tree.end(TaskId(name), ended, "")
    chain = longest_chain(
        tree,
        {
            TaskId("root"): [
                WaitInterval(0.0, 5.0, Wait.MODEL),
                WaitInterval(23.0, 30.0, Wait.MODEL),
            ],
            TaskId("quick"): [WaitInterval(5.0, 9.0, Wait.MODEL)],
            TaskId("slow"): [
                WaitInterval(12.0, 16.0, Wait.FAILURES),
                WaitInterval(16.0, 18.0, Wait.PROVIDER),
                WaitInterval(18.0, 22.0, Wait.TOOL),
            ],
        },
    )

    assert chain == {
        Wait.MODEL: 12.0,
        Wait.TOOL: 4.0,
        Wait.FAILURES: 4.0,
        Wait.PAUSE: 0.0,
        Wait.PROVIDER: 2.0,
        Wait.SLOTS: 7.0,
        Wait.FAN_OUT: 0.0,
        Wait.BUDGET: 0.0,
        Wait.OTHER: 1.0,
    }


def test_levels_and_their_means() -> None:
    found = overlap_counts([(0.0, 4.0), (1.0, 3.0), (3.0, 4.0)])

    # Where one ends as another begins, there are never both.
    assert found == [
        OverlapCount(0.0, 1),
        OverlapCount(1.0, 2),
        OverlapCount(3.0, 2),
        OverlapCount(4.0, 0),
    ]
    assert column_means(found, until=8.0, columns=4) == [1.5, 2.0, 0.0, 0.0]
    assert column_means(found, until=4.0, columns=1) == [1.75]
    assert column_means([], until=0.0, columns=2) == [0.0, 0.0]


def test_simulated_costs_use_the_prices_of_the_named_models() -> None:
    settings = SimulationSettings(seeds=1, spread=0, output_tokens=1_000)
    run = simulate_once(Agent("a", model="openai:gpt-5"), "go", settings, seed=1)
    (answer,) = facts(run.entries, ModelAnswered)
    usage = answer.message.usage

    assert usage.output_tokens == 1_000
    assert usage.micro_usd == round(usage.input_tokens * 1.25 + 1_000 * 10)


def test_an_unknown_price_is_never_reported_as_free() -> None:
    unknown = simulate(Agent("a", model="x:unheard-of"), "go", _few())
    partly = simulate(team(), "go", _few())

    assert unknown.cost is None
    assert unknown.unpriced == ("x:unheard-of",)
    assert "unknown: x:unheard-of" in unknown.to_text()
    assert msgspec.json.decode(unknown.to_json())["cost"] is None
    assert partly.cost is not None
    assert "≥ $" in partly.to_text()


def test_a_price_for_all_of_them_can_be_given() -> None:
    settings = SimulationSettings(price=Price(input=0, output=1_000_000), spread=0)
    run = simulate_once(Agent("a", model="x:unheard-of"), "go", settings, seed=1)

    assert run.usage.micro_usd == 300 * 1_000_000
    assert not run.unpriced


def test_failures_are_counted_by_kind_and_retried_as_usual() -> None:
    settings = SimulationSettings(failure_rate=0.3, seeds=10)
    report = simulate(team(), "go", settings)

    assert report.failures.keys() == {"overloaded", "rate_limit", "timeout"}
    assert sum(report.failures.values()) < report.calls.mean * 10 * 0.6
    assert report.endings["succeeded"] > 100


def test_a_pause_between_attempts_is_not_a_call_in_flight() -> None:
    settings = SimulationSettings(
        fan_out="20", failure_rate=0.5, provider=ProviderRate(in_flight=2)
    )
    worker = Agent("worker", model="openai:gpt-5-mini")
    editor = Agent("editor", model="openai:gpt-5", delegates=[worker])
    run = simulate_once(editor, "go", settings, seed=2)

    assert run.waited[Wait.PAUSE] > 0
    assert run.peak == 2


def test_a_failure_rate_of_one_fails_every_run() -> None:
    report = simulate(team(), "go", SimulationSettings(failure_rate=1, seeds=2))

    assert report.runs == {"failed": 2}
    # Four attempts, and then no more.
    assert sum(report.failures.values()) == 8


def test_budgets_around_a_simulation_do_not_apply() -> None:
    from orchestrator import budget

    with budget(calls=0):
        report = simulate(team(), "go", _few())

    assert report.runs == {"succeeded": 2}


async def test_a_simulation_inside_an_event_loop_names_the_alternative() -> None:
    await trio.lowlevel.checkpoint()
    with pytest.raises(DefinitionError, match=r"trio\.to_thread\.run_sync\(simulate"):
        simulate(team(), "go", _few())


@pytest.mark.realtime
async def test_a_simulation_runs_in_a_thread_beside_an_event_loop() -> None:
    report = await trio.to_thread.run_sync(simulate, team(), "go", _few())

    assert report.runs == {"succeeded": 2}


@pytest.mark.parametrize("fan_out", ["", "x", "3-", "5-2", "1,,2", "-1"])
def test_an_invalid_fan_out_is_refused(fan_out: str) -> None:
    with pytest.raises(DefinitionError, match="a fan-out cannot be"):
        Breadth.parse(fan_out)


@pytest.mark.parametrize(
    "settings", [{"seeds": 0}, {"failure_rate": 1.5}, {"model_seconds": -1}, {"spread": math.nan}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"is not a finite number|is out of range"):
        SimulationSettings(**settings)


def test_an_estimate_has_an_expected_and_a_worst_cost() -> None:
    worker = Agent("worker", model="openai:gpt-5-mini", limits=Limits(calls=2, tokens=1_000))
    editor = Agent(
        "editor",
        model="openai:gpt-5-mini",
        delegates=[worker],
        limits=Limits(calls=3, tokens=5_000),
        budget=Budget(tasks=10),
    )
    found = estimate(editor, "go", SimulationSettings(seeds=5, spread=0))

    assert found.calls.p50 == 5
    assert found.worst.calls == 3 + 10 * 2
    assert found.worst.tokens == 5_000 + 10 * 1_000
    assert found.worst.cost == pytest.approx(15_000 * 2 / 1_000_000)
    assert found.cost is not None
    assert found.worst.cost is not None
    assert 0 < found.cost.p50 <= found.cost.p95 < found.worst.cost
    assert "at most" in found.to_text()


def test_an_estimate_without_a_bound_is_unbounded_unless_a_budget_is_set() -> None:
    free = estimate(team(), "go", _few())
    bound = estimate(team(), "go", SimulationSettings(seeds=2, budget=Budget(usd=2)))

    assert free.worst.cost is None
    assert free.unpriced == ("anthropic:nobody-knows",)
    assert "unbounded" in free.to_text()
    assert "price unknown: anthropic:nobody-knows" in free.to_text()
    assert bound.worst.cost == 2


def test_copies_of_copies_and_models_without_a_price_have_no_bound() -> None:
    nobody = Agent("a", model=object_without_price(), limits=Limits(tokens=1_000))
    copying = Agent("b", model=ScriptedModel(["priced at nothing"]), copies=True)
    paid = SimulationSettings(seeds=2, price=Price(output=1))

    assert estimate(nobody, "go", _few()).worst.cost is None
    assert estimate(nobody, "go", paid).worst.cost == pytest.approx(0.001)
    assert estimate(copying, "go", _few()).worst.calls is None
    assert "unknown" in estimate(nobody, "go", _few()).to_text()


def object_without_price() -> Model:
    return StreamingModel.always(AssertionError("it was called"), price=None)


def test_the_command_prints_a_report_and_draws_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "examples" / "research_team.py")
    plot = tmp_path / "plot.svg"

    options = ["--seeds", "4", "--price", "1/2.5", "--plot", str(plot)]

    assert run_command(["simulate", file, *options]) == 0
    said = capsys.readouterr().out
    assert "4 simulated runs" in said
    assert "limited by  critical path" in said
    assert "█" in said
    assert plot.read_text().startswith("<svg ")


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--failure-rate", "1"], 1), (["--budget-usd", "0.000001", "--price", "1/2.5"], 3)],
)
def test_the_simulate_command_exits_like_a_run_if_every_run_fails(
    options: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "examples" / "research_team.py")

    assert run_command(["simulate", file, "--seeds", "2", *options]) == code
    assert "2 simulated runs" in capsys.readouterr().out


def test_a_local_model_is_free_and_one_without_a_price_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "team.py"
    file.write_text("from orchestrator import Agent\na = Agent('a', model='local:smollm2')")
    found = {}
    for model in ("local:smollm2", "openai:gpt-5-mini", "openai:nothing-like-it"):
        command = ["simulate", str(file), "--model", model, "--seeds", "1", "--json"]
        assert run_command(command) == 0
        found[model] = json.loads(capsys.readouterr().out)
    free, known, unknown = found.values()
    assert (free["cost"]["max"], free["unpriced"]) == (0, [])
    assert known["cost"]["max"] > 0
    assert (unknown["cost"], unknown["unpriced"]) == (None, ["openai:nothing-like-it"])


def test_the_simulate_command_reports_an_unwritable_chart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "nowhere" / "plot.svg"
    file = str(ROOT / "examples" / "hello.py")

    assert run_command(["simulate", file, "--seeds", "1", "--plot", str(plot)]) == 1
    said = f"orchestrator: {plot}: No such file or directory\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (["--price", "free"], "--price is 'free'; it must be IN/OUT"),
        (["--fan-out", "many"], "a fan-out cannot be 'many'"),
        (["--failure-rate", "2"], "use a share from 0 to 1"),
    ],
)
def test_the_simulate_command_refuses_invalid_options(
    option: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(ROOT / "examples" / "hello.py")

    assert run_command(["simulate", file, *option]) == 2
    assert complaint in capsys.readouterr().err


def _few() -> SimulationSettings:
    return SimulationSettings(seeds=2)
