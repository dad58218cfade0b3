"""A process is killed during its work; the next one resumes, and does nothing twice.

The first process dies by SIGKILL while it looks up the third subject, so it cannot clean up or save
anything. The second process opens the same journal and the same session. The tool writes a diary
outside of the journal, which proves what ran.
"""

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import trio
from models import NAMED

from orchestrator import (
    Agent,
    Pipeline,
    ScriptedModel,
    ToolCall,
    Transcript,
    agent,
    delegate,
    open_orchestrator,
    tool,
)

SUBJECTS = ["Bees", "Flowers", "Honey", "Winter"]


def make_book(diary: Path, process: str, *, dies_at: str = "") -> Pipeline[str, str]:
    """Return an agent that writes a book, in a process that may die of a subject."""

    # It only reads, so a call that a crash interrupts may be made again.
    @tool(idempotent=True)
    def look_up(subject: str) -> str:
        """Look a subject up in the encyclopedia."""
        if subject == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with diary.open("a") as file:
            file.write(f"{subject} looked up by the {process} process\n")
        return f"all about {subject.lower()}"

    def write(transcript: Transcript) -> str | ToolCall:
        if len(transcript) == 1:
            return ToolCall("look_up", {"subject": transcript[0].text})
        return f"A chapter with {transcript[-1].text}."

    writer = Agent(
        "writer",
        instructions="Look the subject up, and write a sentence about it.",
        model=NAMED or ScriptedModel.always(write),
        tools=[look_up],
    )

    @agent
    async def book(_: str) -> str:
        """Write a book, chapter by chapter."""
        return "\n".join([await delegate(writer, subject) for subject in SUBJECTS])

    return book


async def begin(folder: Path) -> None:
    book = make_book(folder / "diary", "first", dies_at="Honey")
    async with open_orchestrator(folder / "journal.db") as orchestrator:
        async with orchestrator.open_session(book) as session:
            await session.ask("The garden")


async def go_on(folder: Path) -> None:
    book = make_book(folder / "diary", "second")
    async with open_orchestrator(folder / "journal.db") as orchestrator:
        (interrupted,) = orchestrator.runs
        async with orchestrator.open_session(book, session=interrupted) as session:
            print((await session.replies.receive()).text)
            print(session.tree.total.calls, "model calls in both: two for each chapter")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spawn = multiprocessing.get_context("spawn")
        first = spawn.Process(target=trio.run, args=(begin, folder))
        first.start()
        first.join()
        assert first.exitcode == -signal.SIGKILL
        print("The first process was killed.")
        trio.run(go_on, folder)
        print((folder / "diary").read_text(), end="")


if __name__ == "__main__":
    main()

# prints:
# The first process was killed.
# A chapter with all about bees.
# A chapter with all about flowers.
# A chapter with all about honey.
# A chapter with all about winter.
# 8 model calls in both: two for each chapter
# Bees looked up by the first process
# Flowers looked up by the first process
# Honey looked up by the second process
# Winter looked up by the second process
