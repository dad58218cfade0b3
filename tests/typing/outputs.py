"""`Agent(output=T)` is an `Agent[T]` for type checkers, whatever T is. It is never run."""

import dataclasses
import enum
from typing import Literal, TypedDict, assert_type

import attrs
import msgspec
import pydantic
import pydantic.dataclasses

from orchestrator import FanOut, Orchestrator, map_each
from orchestrator.agents import Agent, Pipeline, ScriptedModel, agent
from orchestrator.kernel.pipelines.combinators.fan_out import Items

MODEL = ScriptedModel.always("")


@attrs.frozen
class Attrs:
    x: int


@dataclasses.dataclass
class Data:
    x: int


class Dictionary(TypedDict):
    x: int


class Struct(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    x: int


@pydantic.dataclasses.dataclass
class Checked:
    x: pydantic.PositiveInt


class Colour(enum.Enum):
    RED = "red"


assert_type(Agent("a", model=MODEL), Agent[str])
assert_type(Agent("a", model=MODEL, output=Attrs), Agent[Attrs])
assert_type(Agent("a", model=MODEL, output=Data), Agent[Data])
assert_type(Agent("a", model=MODEL, output=Dictionary), Agent[Dictionary])
assert_type(Agent("a", model=MODEL, output=Struct), Agent[Struct])
assert_type(Agent("a", model=MODEL, output=Model), Agent[Model])
assert_type(Agent("a", model=MODEL, output=list[Model]), Agent[list[Model]])
assert_type(Agent("a", model=MODEL, output=Model | Checked), Agent[Model | Checked])
assert_type(Agent("a", model=MODEL, output=Checked), Agent[Checked])
assert_type(Agent("a", model=MODEL, output=pydantic.PositiveInt), Agent[int])
assert_type(Agent("a", model=MODEL, output=Colour), Agent[Colour])
assert_type(Agent("a", model=MODEL, output=int), Agent[int])
assert_type(Agent("a", model=MODEL, output=list[Attrs]), Agent[list[Attrs]])
assert_type(Agent("a", model=MODEL, output=dict[str, int]), Agent[dict[str, int]])
assert_type(Agent("a", model=MODEL, output=tuple[int, str]), Agent[tuple[int, str]])
assert_type(Agent("a", model=MODEL, output=Attrs | Data), Agent[Attrs | Data])
assert_type(Agent("a", model=MODEL, output=Attrs | None), Agent[Attrs | None])
assert_type(Agent("a", model=MODEL, output=Literal["yes", "no"]), Agent[Literal["yes", "no"]])
assert_type(
    Agent("a", model=MODEL, output=Attrs, delegates=[Agent("b", model=MODEL)], handoff=True),
    Agent[Attrs],
)
Agent("a", model=MODEL, handoff="yes")  # type: ignore[arg-type]  # pyright: ignore


@agent
async def measure(model: Model) -> Checked:
    return Checked(model.x)


assert_type(measure, Pipeline[Model, Checked])
assert_type(map_each(measure), FanOut[Items[Model], list[Checked], Checked])


async def runs(orchestrator: Orchestrator) -> None:
    either = Agent("a", model=MODEL, output=Attrs | Data)
    run = await orchestrator.run(either, "goal")
    assert_type(run.output, Attrs | Data)
    number: int = run.output  # type: ignore[assignment]  # pyright: ignore
    del number
