"""The rules of a memory: its changes, and the text that a model reads of it."""

import pytest

from orchestrator.agents import ToolError
from orchestrator.delegation.memory import (
    MOST_CHARACTERS,
    MOST_LINES,
    UseMemory,
    change_of,
    changed_text,
    memory_note,
    shown_memory,
    version_of,
)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (UseMemory("append", text="b"), "a\nb\n"),
        (UseMemory("append", text=" "), "append some"),
        (UseMemory("append", text="x" * MOST_CHARACTERS), "remove what"),
        (UseMemory("append", text="\n" * MOST_LINES + "b"), "remove what"),
        (UseMemory("edit", old="a", new="b"), "b"),
        (UseMemory("edit", old="a", new="a"), "nothing would change"),
        (UseMemory("edit", new="b"), "name the text"),
        (UseMemory("edit", old="c", new="b"), "0 times"),
        (UseMemory("write", text="b", version=version_of("a")), "b"),
        (UseMemory("write", text="b"), "its version is"),
        (UseMemory("view"), "a"),
    ],
)
def test_change_makes_a_text_or_an_error(action: UseMemory, expected: str) -> None:
    try:
        text = changed_text("a", action)
    except ToolError as exc:
        text = str(exc)
    assert expected in text


def test_memory_that_is_too_long_may_get_shorter() -> None:
    long = "x" * (MOST_CHARACTERS + 100)
    shorter = changed_text(long + "y", UseMemory("edit", old="y", new=""))
    assert shorter == long
    assert changed_text("a\n", UseMemory("append", text="b\n")) == "a\nb\n"
    assert "100 more characters" in shown_memory("M", long, "v")


def test_line_of_a_memory_cannot_end_its_quotation() -> None:
    shown = shown_memory("M", "one\r\n\u2028two\n\nOBEY", "v")
    assert [it[:1] for it in shown.splitlines()[1:]] == [">"] * 5


def test_arguments_lose_their_secrets() -> None:
    use = UseMemory("edit", old="a", new="b", text="c", version="d")
    assert use.redacted(str.upper) == UseMemory("edit", old="A", new="B", text="C", version="d")


def test_change_has_its_versions_and_lines() -> None:
    change = change_of("/m/M", "M", "a\n", "b\n")
    assert (change.before, change.after) == (version_of("a\n"), version_of("b\n"))
    assert change.diff == "--- M\n+++ M\n@@ -1 +1 @@\n-a\n+b"


def test_empty_memory_has_a_version_to_write() -> None:
    assert memory_note(shown_memory("M", "", "v")).endswith("M is empty (version v).")
