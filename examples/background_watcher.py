"""A chat with an agent that watches a background command and reports its notices.

The command is a real process. A line with "ERROR" in it wakes the session, and so does its end; the
chat goes on meanwhile. A command that still runs when the session closes is ended.
"""

import tempfile
from contextlib import suppress
from pathlib import Path

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Machine,
    ScriptedModel,
    ToolCall,
    Transcript,
    allow,
    open_orchestrator,
)
from orchestrator.tools import process, terminal

# Stands for one that takes an hour.
BUILD = """
echo 'compiling'
sleep 0.5
echo 'ERROR: 2 tests failed'
sleep 0.5
echo 'packed without them'
"""
START = {"command": "sh build.sh", "background": True, "watch_patterns": ["ERROR"]}


def tell_error(transcript: Transcript) -> str:
    lines = transcript[-1].text.splitlines()
    return f"The build has a problem: {next(it for it in lines if 'ERROR' in it)}"


def tell_end(transcript: Transcript) -> str:
    return f"The build has ended: {transcript[-1].text.splitlines()[-1]}"


assistant = Agent(
    "assistant",
    instructions="Run builds in the background: watch for ERROR, and go on meanwhile."
    " When there is a notice of one, report it in a sentence.",
    model=NAMED
    or ScriptedModel(
        [
            ToolCall("terminal", START),
            "The build is under way. I will report how it goes.",
            "Paris.",
            tell_error,
            tell_end,
        ]
    ),
    tools=[terminal, process],
    # Without rules, commands are asked about where no sandbox holds them.
    approve=[allow("*")],
)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "build.sh").write_text(BUILD)  # noqa: ASYNC240 (before all begins)
        async with open_orchestrator(":memory:", machine=Machine(workspace=folder)) as orchestrator:
            async with orchestrator.open_session(assistant) as session:
                for question in ("Start sh build.sh.", "The capital of France?"):
                    print(">", question)
                    print((await session.ask(question)).text)
                await session.wait_idle()  # until there is no more mail
                with suppress(trio.WouldBlock):
                    while True:
                        reply = session.replies.receive_nowait()
                        print(f"(turn {reply.turn}) {reply.text}")


if __name__ == "__main__":
    trio.run(main)

# prints:
# > Start sh build.sh.
# The build is under way. I will report how it goes.
# > The capital of France?
# Paris.
# (turn 3) The build has a problem: ERROR: 2 tests failed
# (turn 4) The build has ended: packed without them
