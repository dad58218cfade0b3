"""`Agent(output=T)`: what a run gives is a T, whatever T is; `tests/typing` says the same."""

import dataclasses
import enum
from typing import Any, Literal, TypedDict

import attrs
import msgspec
import pytest

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.delegation import Ending


@attrs.frozen
class Attrs:
    x: int


@dataclasses.dataclass
class Data:
    y: int


class Dictionary(TypedDict):
    x: int


class Struct(msgspec.Struct):
    x: int


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("promised", "text", "value"),
    [
        (str, "as it is", "as it is"),
        (int, "7", 7),
        (bool, "true", True),
        (Attrs, '{"x": 1}', Attrs(1)),
        (Data, '{"y": 1}', Data(1)),
        (Dictionary, '{"x": 1}', {"x": 1}),
        (Struct, '{"x": 1}', Struct(1)),
        (Colour, '"red"', Colour.RED),
        (Literal["yes", "no"], '"no"', "no"),
        (list[Attrs], '[{"x": 1}]', [Attrs(1)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (Attrs | None, "null", None),
        (Attrs | Data, '{"y": 1}', Data(1)),
        (list[int] | str, '"a"', "a"),
    ],
)
async def test_the_output_of_a_run_has_the_promised_type(
    promised: Any, text: str, value: Any
) -> None:
    sure = Agent("sure", model=ScriptedModel.always(text), output=promised)
    repaired = Agent("repaired", model=ScriptedModel(["{", text]), output=promised)
    wrong = Agent("wrong", model=ScriptedModel.always("{"), output=promised)
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(sure, "go")
        again = await orchestrator.run(repaired, "go")
        failed = await orchestrator.run(wrong, "go")

    assert run.output == value
    assert type(run.output) is type(value)
    if promised is not str:
        assert again.output == value
        assert failed.outcome.ending is Ending.FAILED
        assert failed.outcome.schema_errors
