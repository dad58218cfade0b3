"""An answer is what the agent promises, for every kind of type that a user would promise."""

import dataclasses
from typing import Any, TypedDict

import attrs
import pytest

from orchestrator.agents import Agent, DefinitionError, OutputError, ScriptedModel, read_output
from orchestrator.agents.output.typed import output_schema


@attrs.frozen
class Found:
    text: str
    pages: list[int]


@attrs.frozen
class Missing:
    reason: str


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str
    size: int


@pytest.mark.parametrize(
    ("promised", "text", "output"),
    [
        (str, "just text", "just text"),
        (int, "3", 3),
        (bool, "true", True),
        (list[int], "[1, 2]", [1, 2]),
        (Found, '{"text": "x", "pages": [1]}', Found("x", [1])),
        (Point, '{"x": 1}', Point(1)),
        (Row, '{"name": "a", "size": 2}', {"name": "a", "size": 2}),
        (list[Found], '[{"text": "x", "pages": []}]', [Found("x", [])]),
        (Found | Missing, '{"reason": "gone"}', Missing("gone")),
        (Found | Missing, '{"text": "x", "pages": []}', Found("x", [])),
        (Found | None, "null", None),
        (int | str, '"text in JSON"', "text in JSON"),
    ],
)
def test_an_answer_is_read_as_its_promised_type(promised: Any, text: str, output: object) -> None:
    assert read_output(promised, text) == output
    assert (output_schema(promised) is None) is (promised is str)


@pytest.mark.parametrize(
    ("promised", "text", "problem"),
    [
        (int, '"3"', "not the int it should be: Expected `int`, got `str`"),
        (Found, '{"text": "x"}', "missing required field `pages`"),
        (Found | Missing, "{}", "missing required field `text`.*; .*`reason`"),
        (list[int], "[1", "truncated"),
        (int, "", "truncated"),
    ],
)
def test_an_answer_of_another_type_is_refused_with_the_reason(
    promised: Any, text: str, problem: str
) -> None:
    with pytest.raises(OutputError, match=problem):
        read_output(promised, text)


def test_the_schema_of_alternatives_lists_all_of_them() -> None:
    schema = output_schema(Found | Missing)

    assert schema is not None
    assert schema["anyOf"] == [{"$ref": "#/$defs/Found"}, {"$ref": "#/$defs/Missing"}]
    assert set(schema["$defs"]) == {"Found", "Missing"}


def test_a_type_that_json_cannot_carry_is_refused_when_the_agent_is_defined() -> None:
    with pytest.raises(DefinitionError, match="complex cannot be the output"):
        Agent("odd", model=ScriptedModel([]), output=complex)
