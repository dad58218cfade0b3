"""The team of `make demo-cluster`: an editor that sends six readers off, and waits for them.

Only the models are scripted: the database, the processes and their deaths are real.
"""

import os

import trio

from orchestrator import Agent, ScriptedModel, ToolCall, Transcript, tool

READERS = {"quick": 1.0, "steady": 4.0}
"""How many seconds these readers take for a book. The third kind borrows it from the library."""
BOOKS = ("Ada", "Basil", "Cleo", "Dora", "Emil", "Fay")
LIBRARY_SECONDS = 6.0


@tool(place="library")
async def borrow(book: str) -> str:
    """Borrow a book from the library, which is on another machine and takes its time.

    Args:
        book: the name of its author.
    """
    async with await trio.open_file(os.environ["LIBRARY_LOG"], "a") as log:
        await log.write(f"{book}\n")
    await trio.sleep(LIBRARY_SECONDS)
    return f"here is {book}"


def edit(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        tasks = [
            {"agent": kind, "goal": f"Read the book of {book}."}
            for kind, book in zip(("quick", "steady", "borrower") * 2, BOOKS, strict=True)
        ]
        return ToolCall("delegate_task", {"tasks": tasks, "background": True})
    read = [book for book in BOOKS if any(f"{book} is read" in it.text for it in transcript)]
    if len(read) < len(BOOKS):
        return f"{len(read)} of {len(BOOKS)} books are read; I wait for the others."
    return f"All {len(read)} books are read: {', '.join(read)}."


def book_of(transcript: Transcript) -> str:
    return transcript[0].text.partition("the book of ")[2].partition(".")[0]


def read(transcript: Transcript) -> str:
    return f"{book_of(transcript)} is read."


def borrow_and_read(transcript: Transcript) -> str | ToolCall:
    if len(transcript) == 1:
        return ToolCall("borrow", {"book": book_of(transcript)})
    return f"{book_of(transcript)} is read: {transcript[-1].text}."


readers = [
    Agent(name, instructions="Read one book.", model=ScriptedModel.always(read, seconds))
    for name, seconds in READERS.items()
]
borrower = Agent(
    "borrower",
    instructions="Read one book, which the library has.",
    model=ScriptedModel.always(borrow_and_read, 0.2),
    tools=[borrow],
)
editor = Agent(
    "editor",
    instructions="Have books read, and say when all are.",
    model=ScriptedModel.always(edit, 0.3),
    delegates=[*readers, borrower],
)
