"""Simulating an agent: `orchestrator simulate`."""

import re
from pathlib import Path
from typing import Any, Final

from agents import Agent, Price
from delegation import Ending
from orchestrator.cli.commands.run_json import EXIT_CODES
from orchestrator.cli.errors import CommandError
from orchestrator.simulation import SimulationSettings, simulate

PRICE: Final = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")


def read_price(text: str | None) -> Price | None:
    """Read what a model costs: `IN/OUT`, in dollars per million tokens."""
    if text is None:
        return None
    if (found := PRICE.fullmatch(text)) is None:
        raise CommandError(
            f"--price is {text!r}; it must be IN/OUT in dollars per million tokens, such as"
            " 1.25/10"
        )
    return Price(input=float(found[1]), output=float(found[2]))


def show_simulation(
    agent: Agent[Any],
    goal: str | None,
    settings: SimulationSettings,
    *,
    as_json: bool,
    plot: Path | None,
) -> int:
    """Simulate an agent, print what that comes to, and return the exit code.

    Args:
        agent: who is to act.
        goal: what it is asked; None is something that fits what it takes.
        settings: what is assumed of models and providers.
        as_json: print it for programs.
        plot: a file for the plots as SVG.
    """
    report = simulate(agent, goal, settings)
    print(report.to_json() if as_json else report.to_text())
    if plot is not None:
        plot.write_text(report.to_svg(), encoding="utf-8")
    endings = map(Ending, report.runs)
    return min(EXIT_CODES[ending] for ending in endings)
