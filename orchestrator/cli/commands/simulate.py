"""`orchestrator simulate`: run an agent many times in virtual time."""

import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import attrs

from orchestrator.agents import Budget, Price
from orchestrator.cli.agent_file import load_agent_to_look_at
from orchestrator.cli.errors import CommandError
from orchestrator.cli.exit_codes import ENDING_CODES
from orchestrator.cli.options import AnyAgentFile, BudgetOption, JsonOption, ModelOption, with_model
from orchestrator.delegation import Ending, Rules

PRICE: Final = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")


def simulate(
    file: AnyAgentFile,
    goal: str | None = None,
    /,
    *,
    model: ModelOption = None,
    fan_out: str = "3",
    model_seconds: float = 8,
    output_tokens: float = 300,
    tool_seconds: float = 1,
    price: str | None = None,
    failure_rate: float = 0,
    live_tasks: int = 1_000,
    provider_rate: int | None = None,
    provider_tokens: int | None = None,
    provider_calls: int | None = None,
    policy: Literal["shortest", "fair", "fifo"] = "shortest",
    limits: BudgetOption = None,
    seeds: int = 100,
    json: JsonOption = False,
    plot: Path | None = None,
) -> int:
    """Run an agent many times in virtual time: no model is asked, and no tool runs.

    The orchestrator is real; the models are simulated. Shows the duration, the cost and the
    bottleneck: the critical path, slots, the provider, failures or a budget. Exits with 0 if a run
    succeeded, and otherwise like `run`.

    Args:
        goal: The goal of the agent; by default a value that fits its input.
        fan_out: How many tasks an agent delegates: 4, 2-6, or by level from the root: 10,2-6.
        model_seconds: Median latency of a model, in seconds.
        output_tokens: Median length of an answer, in tokens.
        tool_seconds: Median time of a tool, in seconds.
        price: Price of every model, IN/OUT in dollars per million tokens; by default by name.
        failure_rate: Share of attempts that fail, 0 to 1.
        live_tasks: The most tasks that run at once.
        provider_rate: Requests per minute that a provider accepts.
        provider_tokens: Tokens per minute that a provider accepts.
        provider_calls: Calls that a provider answers at once.
        policy: The order of calls that wait for a provider.
        seeds: The number of runs.
        plot: A file for the plots, as SVG.
    """
    # Imported late: only this command needs the simulation.
    from orchestrator.products.history import simulation

    settings = simulation.SimulationSettings(
        fan_out=fan_out,
        model_seconds=model_seconds,
        output_tokens=output_tokens,
        tool_seconds=tool_seconds,
        price=_parse_price(price),
        failure_rate=failure_rate,
        rules=Rules(live_tasks=live_tasks),
        provider=simulation.ProviderRate(
            requests_per_minute=provider_rate,
            tokens_per_minute=provider_tokens,
            in_flight=provider_calls,
            policy=policy,
        ),
        budget=None if limits is None else Budget(**attrs.asdict(limits)),
        seeds=seeds,
    )
    agent = with_model(load_agent_to_look_at(file, model=model), model)
    with _shown_progress(seeds) as tell:
        report = simulation.simulate(agent, goal, settings, tell=tell)
    print(report.to_json() if json else report.to_text())
    if plot is not None:
        plot.write_text(report.to_svg(), encoding="utf-8")
    return min(ENDING_CODES[Ending(ending)] for ending in report.runs)


@contextmanager
def _shown_progress(seeds: int) -> Generator[Callable[[object], None]]:
    """Count the simulated runs in one line of a terminal."""
    count = 0

    def show(words: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{words}")
            sys.stderr.flush()

    def tell(_: object) -> None:
        nonlocal count
        count += 1
        show(f"{count:,} of {seeds:,} runs simulated")

    show("simulating")
    try:
        yield tell
    finally:
        show("")


def _parse_price(text: str | None) -> Price | None:
    """Parse `IN/OUT`, in dollars per million tokens."""
    if text is None:
        return None
    if (found := PRICE.fullmatch(text)) is None:
        raise CommandError(
            f"--price is {text!r}; it must be IN/OUT in dollars per million tokens, such as 1.25/10"
        )
    return Price(input=float(found[1]), output=float(found[2]))
