"""A simulated model answers with something that fits what was promised."""

import dataclasses
import datetime as dt
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest

from orchestrator.agents import read_output
from orchestrator.agents.output.typed import output_schema
from orchestrator.products.history.simulation.schema_sample import sample_value


@attrs.frozen
class Source:
    url: str
    year: Annotated[int, msgspec.Meta(ge=1900, le=2100)]
    pages: tuple[int, int] = (1, 2)


@attrs.frozen
class Report:
    title: Annotated[str, msgspec.Meta(min_length=20, max_length=40)]
    sources: list[Source]
    tags: frozenset[str] = frozenset()
    kind: Literal["short", "long"] = "short"
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None


@dataclasses.dataclass
class Branch:
    name: str
    below: "list[Branch]"


class Row(TypedDict):
    day: dt.date
    amount: Annotated[int, msgspec.Meta(multiple_of=7, ge=10)]


@pytest.mark.parametrize(
    "promised",
    [
        int,
        float,
        bool,
        None,
        list[int],
        set[str],
        tuple[int, str],
        dict[str, int],
        int | None,
        Literal["x"],
        Source,
        Report,
        Source | Report,
        Branch,
        Row,
        list[Row],
        dt.timedelta,
        bytes,
        Annotated[int, msgspec.Meta(gt=5)],
        Annotated[int, msgspec.Meta(lt=-5)],
        Annotated[float, msgspec.Meta(le=0)],
        Annotated[list[int], msgspec.Meta(min_length=6, max_length=7)],
        Any,
    ],
)
def test_a_sample_value_can_be_read_as_the_promised_type(promised: Any) -> None:
    schema = output_schema(promised)
    assert schema is not None
    made = msgspec.json.encode(sample_value(schema, length=4)).decode()

    read_output(promised, made)


def test_lists_are_as_long_as_the_fan_out_and_lists_in_lists_have_one() -> None:
    """A pipeline may map over those, too; further down, types may be recursive."""
    schema = output_schema(Report)
    branches = output_schema(Branch)
    assert schema is not None
    assert branches is not None
    made = sample_value(schema, length=3)
    grown = sample_value(branches, length=2)

    assert [source["url"] for source in made["sources"]] == ["text 2", "text 3", "text 4"]
    assert len(set(made["tags"])) == 3
    assert "kind" not in made
    below = [branch["below"] for branch in grown["below"]]
    assert [len(branches) for branches in below] == [1, 1]
    assert [branch["below"] for branches in below for branch in branches] == [[], []]


def test_parts_that_must_all_fit_are_put_together() -> None:
    schema = {
        "allOf": [
            {"$ref": "#/$defs/named"},
            {"properties": {"age": {"type": ["integer", "null"]}}, "required": ["age"]},
        ],
        "$defs": {"named": {"type": "object"}},
    }

    assert sample_value(schema, length=1) == {"age": 1}
    assert sample_value({"items": True, "type": "array"}, length=1) == [{}]
