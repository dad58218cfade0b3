"""Lets others judge our MCP client and server: `python -m tests.mcp.conformance`, a minute or four.

The official suite runs in both revisions of the protocol that we speak. What fails is run again
alone, since the suite measures times. Exit 0 is: all passed but what the table of docs/mcp.md
names, and all of that failed.
"""

import argparse
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from tests.mcp.conformance.others import OF_CLIENT, OF_SERVER
from tests.mcp.conformance.skipped import judged, rows
from tests.mcp.conformance.suite import SUITE, Scenario, Verdict, judge, scenarios
from tests.mcp.conformance.token_proxy import token_proxy
from tests.mcp.conformance_agents import TASK_MODES
from tests.server.server_process import server_process

AGENTS = Path(__file__).parent.parent / "conformance_agents.py"


@asynccontextmanager
async def served_agents() -> AsyncGenerator[str]:
    """Serve the agents that the suite expects, and give the address of its MCP endpoint."""
    modes = [it for mode in TASK_MODES for it in ("--mcp-tasks", mode)]
    with TemporaryDirectory() as folder:
        async with (
            server_process(Path(folder), AGENTS.read_text(), *modes) as server,
            token_proxy(server.url, server.token) as url,
        ):
            yield f"{url}/mcp"


async def judge_all(wanted: Sequence[Scenario], url: str) -> list[Verdict]:
    """Let the suite judge us in scenarios, as many at once as there are processors."""
    verdicts: dict[Scenario, Verdict] = {}
    table = rows()

    async def one(scenario: Scenario) -> None:
        async with limit:
            its_url = url if scenario.side == "server" else None
            verdicts[scenario] = await judge(scenario, its_url)

    for at_once in (os.cpu_count() or 1, 1):
        limit = trio.CapacityLimiter(at_once)
        async with trio.open_nursery() as nursery:
            for scenario in wanted:
                known = verdicts.get(scenario)
                if known is None or judged(known, table)[1]:
                    nursery.start_soon(one, scenario)
    return [verdicts[it] for it in wanted]


def report(verdicts: Sequence[Verdict]) -> int:
    """Print a line for each scenario, and return how many ended wrongly."""
    table, wrong = rows(), 0
    for verdict in verdicts:
        ending, problems = judged(verdict, table)
        checks = f"{verdict.good} of {verdict.good + len(verdict.bad)}"
        left_out = f", {verdict.skipped} left out" if verdict.skipped else ""
        print(f"{ending:8} {verdict.scenario!s:64} {checks}{left_out}")
        for problem in problems:
            print(f"         {problem}")
        wrong += bool(problems)
    unknown = [it for it in table if not any(map(it.covers, scenarios()))]
    for row in unknown:
        print(f"failed   docs/mcp.md has a row for {row.scenario!r}: no such scenario")
    return wrong + len(unknown)


async def try_program(name: str, program: Callable[[], Awaitable[None]]) -> int:
    """Print how a program of others got on with us, and return 1 if badly."""
    try:
        await program()
    except Exception as exc:  # noqa: BLE001 (reported, and the others go on)
        print(f"failed   {name}\n         {exc}")
        return 1
    print(f"passed   {name}")
    return 0


async def main(words: Sequence[str]) -> int:
    """Run what has one of some words in its name, and return the exit code."""
    wanted = [it for it in scenarios() if not words or any(word in str(it) for word in words)]
    wrong = 0
    async with served_agents() as url:
        wrong += report(await judge_all(wanted, url))
        programs: dict[str, Callable[[], Awaitable[None]]] = {
            **{name: partial(it, url) for name, it in OF_SERVER.items()},
            **OF_CLIENT,
        }
        for name, program in programs.items():
            if not words or any(word in name for word in words):
                wrong += await try_program(name, program)
    print(f"{wrong} wrong" if wrong else "all as docs/mcp.md says")
    return 1 if wrong else 0


if __name__ == "__main__":
    if not SUITE.exists():
        sys.exit("the suite is not installed: run `make conformance`")
    parser = argparse.ArgumentParser(prog="python -m tests.mcp.conformance")
    parser.add_argument("words", nargs="*", help="parts of names: tasks-, auth/, Inspector")
    sys.exit(trio.run(main, parser.parse_args().words))
