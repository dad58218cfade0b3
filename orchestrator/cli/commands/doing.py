"""The commands that have something done."""

import math
import os
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import Parameter

from agents import Budget
from agents.models.registry import model_named
from delegation import Rules
from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.commands.chat import chat_in_terminal
from orchestrator.cli.commands.demo_agents import chat_agent
from orchestrator.cli.commands.models import ask_model, print_providers
from orchestrator.cli.commands.run import run_goal, show_demo, show_local_demo
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import (
    JournalOption,
    ProgressOption,
    journal_of,
    stoppable,
)
from orchestrator.cli.terminal.console import Terminal


def demo(
    *,
    stateless: bool = False,
    local: bool = False,
    seconds: float = 0.8,
    progress: ProgressOption = "auto",
    journal: JournalOption = None,
) -> int:
    """Watch an editor delegate to researchers: no key, no server.

    Args:
        stateless: Ask through a session that cannot be told anything later: all is joined.
        local: Use a real model, small and silly, that runs on this machine.
        seconds: How long a scripted model takes for an answer.
    """
    if not 0 <= seconds < math.inf:
        raise CommandError(f"--seconds is {seconds}; it must be 0 or more")
    console = Terminal(stderr=progress == "json")
    if local:
        model = model_named("local:smollm2", os.environ)
        return stoppable(
            lambda stop: show_local_demo(
                console, model, stop, journal=journal, progress=progress
            )
        )
    return stoppable(
        lambda stop: show_demo(
            console,
            stop,
            stateless=stateless,
            seconds=seconds,
            journal=journal,
            progress=progress,
        )
    )


def run(
    file: str,
    goal: str,
    /,
    *,
    budget_usd: float | None = None,
    tokens: int | None = None,
    seconds: float | None = None,
    max_tasks: int | None = None,
    json: bool = False,
    quiet: bool = False,
    progress: ProgressOption = "auto",
    journal: JournalOption = None,
) -> int:
    """Run an agent or a pipeline on a goal. The answer goes to stdout, the tree to stderr.

    Exits with 0 if it succeeded, 1 if it failed, 3 if it was over budget, 4 if it ran out of time
    and 5 if it was cancelled; with 2 if there was something wrong with the command.

    Args:
        file: A Python file that defines the agent: FILE, or FILE:NAME if it defines several.
        goal: What the agent is to do; of a pipeline that takes no text, JSON.
        budget_usd: What all of it may cost.
        tokens: How many tokens all of it may read and write.
        seconds: How long all of it may take.
        max_tasks: How many tasks may be handed on.
        json: Print one JSON document instead of the answer: outcome, output, usage, tree.
        quiet: Show nothing but that.
    """
    # The file may be anything, so it runs before the event loop does.
    agent = load_agent(file)
    limits = Budget(usd=budget_usd, tokens=tokens, seconds=seconds, tasks=max_tasks)
    if json and progress == "json":
        raise CommandError(
            "--json is one document when it has ended, and --progress=json a line for each"
            " fact: say which of them stdout is for"
        )
    return stoppable(
        lambda stop: run_goal(
            agent,
            goal,
            stop,
            limits=None if limits == Budget() else limits,
            quiet=quiet,
            json=json,
            journal=journal,
            progress=progress,
        )
    )


def chat(
    file: str | None = None,
    /,
    *,
    session: str | None = None,
    progress: ProgressOption = "none",
    journal: JournalOption = None,
) -> int:
    """Talk to an agent. What it has running in the background comes back as news.

    Args:
        file: A Python file that defines the agent, FILE or FILE:NAME; without one, somebody
            scripted answers.
        session: The id of an earlier chat, to go on with it.
    """
    agent = chat_agent(seconds=0.4) if file is None else load_agent(file)
    return stoppable(
        lambda stop: chat_in_terminal(
            agent,
            Terminal(stderr=progress == "json"),
            stop,
            file=file,
            session=session,
            journal=journal,
            progress=progress,
        )
    )


def simulate(
    file: str,
    goal: str | None = None,
    /,
    *,
    fan_out: str = "3",
    model_seconds: float = 8,
    output_tokens: float = 300,
    tool_seconds: float = 1,
    price: str | None = None,
    failure_rate: float = 0,
    live_tasks: int = 1_000,
    provider_rate: int | None = None,
    provider_tokens: int | None = None,
    budget_usd: float | None = None,
    seeds: int = 100,
    json: bool = False,
    plot: Path | None = None,
) -> int:
    """Run an agent many times in virtual time: no model is asked, no tool is run.

    The orchestrator is real, the models only pretend. Shows how long it takes, what it costs, and
    what limits it: the critical path, room, the provider, failures or a budget. Exits with 0 if a
    run succeeded, and otherwise as `run` does.

    Args:
        file: A Python file that defines the agent: FILE, or FILE:NAME if it defines several.
        goal: What the agent is asked; left out: something that fits what it takes.
        fan_out: How many tasks an agent hands on: 4, 2-6, or by level from the root: 10,2-6.
        model_seconds: How long half of the answers take at most.
        output_tokens: How long half of the answers are at most.
        tool_seconds: How long half of the tools take at most.
        price: What every model costs, IN/OUT in dollars per million tokens; left out: by its name.
        failure_rate: Which share of all attempts fails, 0 to 1.
        live_tasks: How many tasks may work at once.
        provider_rate: How many requests a provider takes a minute.
        provider_tokens: How many tokens a provider takes a minute.
        budget_usd: What a run may cost.
        seeds: How many runs.
        json: Print it for programs.
        plot: A file for the plots, as SVG.
    """
    # Imported late: nobody else needs dice.
    from orchestrator.cli.commands.simulate import read_price, show_simulation
    from orchestrator.simulation import ProviderRate, SimulationSettings

    settings = SimulationSettings(
        fan_out=fan_out,
        model_seconds=model_seconds,
        output_tokens=output_tokens,
        tool_seconds=tool_seconds,
        price=read_price(price),
        failure_rate=failure_rate,
        rules=Rules(live_tasks=live_tasks),
        provider=ProviderRate(
            requests_per_minute=provider_rate, tokens_per_minute=provider_tokens
        ),
        budget=None if budget_usd is None else Budget(usd=budget_usd),
        seeds=seeds,
    )
    agent = load_agent(file)
    return show_simulation(agent, goal, settings, as_json=json, plot=plot)


def replay(
    run: str | None = None,
    /,
    *,
    file: str,
    from_: Annotated[str | None, Parameter(name="--from")] = None,
    quiet: bool = False,
    journal: JournalOption = None,
) -> int:
    """Do a run again from what the journal has of it: no model is asked, no tool is run.

    0 is the same, 1 is not: then the first difference is shown.

    Args:
        run: The id of the run, or how it begins; by default the newest one.
        file: The Python file that defines its agent: FILE, or FILE:NAME if it defines several.
        from_: Go on live from where this task was asked for, in a run of its own: the id of a
            task, or its path.
        quiet: With --from, show the answer only.
    """
    # Imported late: nobody else needs a clock that jumps.
    from orchestrator.cli.commands.replay import fork_from, show_replay

    agent = load_agent(file)
    if from_ is None:
        return show_replay(agent, journal_of(journal), run, journal=journal)
    task = from_
    return stoppable(
        lambda stop: fork_from(
            agent, journal_of(journal), run, stop, task=task, quiet=quiet
        )
    )


def models() -> None:
    """List whose models can be named, and what each needs: a key, an extra."""
    print_providers(Terminal(), os.environ)


def ask(model: str, question: str, /, *, reasoning: bool = False) -> int:
    """Ask a model one question. The answer goes to stdout as it comes, its cost to stderr.

    Args:
        model: Its name, such as openai:gpt-5-mini; with 'a | b', b is asked where a fails.
        question: What to ask.
        reasoning: Show what the model thinks too, on stderr.
    """
    return trio.run(
        lambda: ask_model(model, question, reasoning=reasoning, environ=os.environ)
    )
