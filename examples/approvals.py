"""An agent with a terminal asks before it does more than look, and the program answers.

`orchestrator.questions` is a stream of the questions of all runs. A run has people to ask only
where the caller says so: `attended=True`. Without that, and without an answer in time, the
answer is no.
"""

import tempfile
from pathlib import Path

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Machine,
    Orchestrator,
    ScriptedModel,
    ToolCall,
    Transcript,
    allow,
    confirm,
    open_orchestrator,
)
from orchestrator.tools import terminal


def report(transcript: Transcript) -> str:
    """Say of each command what came of it."""
    answers = (it.text for it in transcript[2::2])
    return "\n".join("it ran" if '"exit_code":0' in answer else answer for answer in answers)


cleaner = Agent(
    "cleaner",
    instructions="Remove what a build has left behind. Look first.",
    model=NAMED
    or ScriptedModel(
        [
            ToolCall("terminal", {"command": "ls build"}),
            ToolCall("terminal", {"command": "rm -r build"}),
            ToolCall("terminal", {"command": "rm -r src"}),
            report,
        ]
    ),
    tools=[terminal],
    approve=[allow("terminal", command="ls *"), confirm("terminal", seconds=300)],
)


async def answer_forever(orchestrator: Orchestrator) -> None:
    """Answer as a person would: what is built can go, and sources stay."""
    async for question in orchestrator.questions:
        is_fine = question.subject == "rm -r build"
        print(f"{question.path} wants to run {question.subject!r}")
        await orchestrator.answer(
            question.id,
            "once" if is_fine else "deny",
            reason="" if is_fine else "sources stay",
            by="Ann",
        )


def names_in(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("build", "src"):
            (Path(folder) / name).mkdir()
        async with (
            open_orchestrator(":memory:", machine=Machine(workspace=folder)) as orchestrator,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(answer_forever, orchestrator)
            run = await orchestrator.run(cleaner, "Clean up.", attended=True)
            nursery.cancel_scope.cancel()
        print(run.output)
        print(*names_in(folder), "is left")


if __name__ == "__main__":
    trio.run(main)

# prints:
# /cleaner wants to run 'rm -r build'
# /cleaner wants to run 'rm -r src'
# it ran
# it ran
# terminal was denied by Ann: sources stay. It was not run.
# src is left
