"""A program that runs the operator with a control socket: `python -m ... FOLDER/`."""

import json
import sys
from functools import partial

import trio

from orchestrator import open_orchestrator
from orchestrator.control import open_control
from tests.console.team import operator


async def main(address: str) -> None:
    """Run the operator, which asks for an approval, and print the run when it asks."""
    async with open_orchestrator(address) as orchestrator:
        file = orchestrator.read.journal_file
        assert file is not None
        async with open_control(orchestrator, file), trio.open_nursery() as nursery:
            nursery.start_soon(partial(orchestrator.run, operator, "go", attended=True))
            async for question in orchestrator.questions:
                await orchestrator.read.wait_durable()
                run = orchestrator.read.records.tasks[question.task].session
                print(json.dumps({"kind": "ApprovalAsked", "session": run}), flush=True)
                break


trio.run(main, sys.argv[1])
