"""An agent is a frozen value, checked when it is made."""

import math
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from orchestrator.agents import (
    Agent,
    Budget,
    Compaction,
    DefinitionError,
    Limits,
    Patience,
    ScriptedModel,
    Tool,
    ToolCall,
    tool,
)

MODEL = ScriptedModel.always("hello")


@tool
def look() -> str:
    """Look around."""
    return "nothing"


@pytest.mark.parametrize("name", ["a", "editor", "Fact-checker_2", "x" * 64])
def test_a_name_is_a_letter_and_letters_digits_and_dashes(name: str) -> None:
    assert Agent(name, model=MODEL).name == name


@pytest.mark.parametrize(
    "name", ["", "2nd", "-a", "_a", "two words", "a/b", "a[1]", "a\n", "é", "x" * 65]
)
def test_a_name_that_cannot_be_a_path_step_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be the name of an agent") as caught:
        Agent(name, model=MODEL)

    assert repr(name) in str(caught.value)


def test_two_tools_of_one_name_are_refused() -> None:
    """A model that writes the name could mean either."""
    with pytest.raises(DefinitionError, match="'editor': it has two tools called 'look'"):
        Agent("editor", model=MODEL, tools=[look, attrs.evolve(look, idempotent=True)])


def test_two_delegates_of_one_name_are_refused() -> None:
    helpers = [Agent("helper", model=MODEL), Agent("helper", model="openai:x")]

    with pytest.raises(DefinitionError, match="has two delegates called 'helper'"):
        Agent("editor", model=MODEL, delegates=helpers)


def test_making_an_agent_does_not_print_its_team() -> None:
    """The time would double with each level of two delegates."""

    class Unspeakable(Agent):
        def __repr__(self) -> str:
            raise AssertionError("nobody has asked who it is")

    below = Unspeakable("below", model=MODEL)
    above = Agent("above", model=MODEL, delegates=[below], tools=[look])

    assert above.delegates == (below,)


def test_names_may_meet_in_different_places() -> None:
    """A delegate is found below the agent that has it, and a tool is no delegate."""
    look_agent = Agent("look", model=MODEL)
    editor = Agent("look", model=MODEL, tools=[look], delegates=[look_agent])

    assert editor.tools[0].name == editor.delegates[0].name == editor.name


def test_lists_become_part_of_the_value() -> None:
    """The caller's list cannot change the agent later."""
    tools, team = [look], [Agent("helper", model=MODEL)]
    editor = Agent("editor", model=MODEL, tools=tools, delegates=team)
    tools.clear()
    team.clear()

    assert (len(editor.tools), len(editor.delegates)) == (1, 1)


def test_an_agent_cannot_be_changed() -> None:
    editor = Agent("editor", model=MODEL)

    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        editor.name = "writer"  # type: ignore[misc]


def test_a_changed_copy_is_checked_again() -> None:
    editor = Agent("editor", model=MODEL)

    assert attrs.evolve(editor, name="writer") == Agent("writer", model=MODEL)
    with pytest.raises(DefinitionError, match="cannot be the name"):
        attrs.evolve(editor, name="the writer")


def test_only_a_name_and_a_model_are_needed() -> None:
    editor = Agent("editor", model="openai:gpt-5")

    assert (editor.instructions, editor.tools, editor.delegates) == ("", (), ())
    assert editor.output is str
    assert editor.limits == Limits(calls=100, seconds=None)


def test_the_parts_of_an_agent_are_immutable() -> None:
    parts: list[tuple[Tool | ToolCall | Limits, str]] = [
        (look, "name"),
        (ToolCall("look"), "name"),
        (Limits(), "seconds"),
    ]

    for part, field in parts:
        with pytest.raises(AttributeError):
            setattr(part, field, None)


@pytest.mark.parametrize("limits", [{"seconds": -1}, {"seconds": math.nan}, {"tokens": -5}])
def test_an_invalid_limit_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="makes no sense"):
        Limits(**limits)


@pytest.mark.parametrize(
    ("define", "name"),
    [
        (Limits, "seconds"),
        (Limits, "calls"),
        (Budget, "usd"),
        (Budget, "tasks"),
        (Patience, "stalled"),
    ],
)
def test_a_limit_must_be_a_number(define: Callable[..., object], name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\({name}='x'\) is not a number"):
        define(**{name: "x"})


def test_the_class_of_a_model_is_refused_as_a_model() -> None:
    with pytest.raises(DefinitionError, match="its model is a class"):
        Agent("a", model=ScriptedModel)  # type: ignore[arg-type]


@pytest.mark.parametrize(("window", "keep_last"), [(800, 4), (9_000, 0), ("x", 4), (9_000, "x")])
def test_a_compaction_that_cannot_work_is_refused(window: Any, keep_last: Any) -> None:
    with pytest.raises(DefinitionError, match="cannot work"):
        Compaction(window=window, keep_last=keep_last)


def test_a_window_without_room_for_a_message_is_refused_when_the_agent_is_made() -> None:
    tight = Compaction(window=3_000)
    Agent("fits", model="m:x", instructions="i" * 4_000, compaction=tight)

    with pytest.raises(DefinitionError, match="no message fits"):
        Agent("long", model="m:x", instructions="i" * 8_000, compaction=tight)
    with pytest.raises(DefinitionError, match="no message fits"):
        Agent("boss", model="m:x", instructions="i" * 4_000, copies=True, compaction=tight)
