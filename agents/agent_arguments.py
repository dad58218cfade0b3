"""The arguments of an agent that is called as a tool: their JSON schema, and the goal in them.

An agent that takes an object has the fields of it as arguments. Any other input is one argument:
under the name of the function's parameter, or `goal`.
"""

import inspect
from collections.abc import Mapping
from typing import Any, Final, Self, get_type_hints

import attrs
import msgspec

from orchestrator.agents.agent import Agent
from orchestrator.agents.errors import InputError
from orchestrator.agents.output.typed import output_schema
from orchestrator.agents.pipelines.pipeline import Pipeline
from orchestrator.agents.tools.task_context import is_task_context

GOAL: Final = "goal"
_REFERENCE: Final = "#/$defs/"


@attrs.frozen
class AgentArguments:
    """The arguments of an agent that is called as a tool."""

    agent: Agent[Any]
    schema: Mapping[str, Any]
    """A JSON schema whose root is an object."""
    only: str | None
    """The one argument that is the input itself; None if the input is the object of all."""

    @classmethod
    def of(cls, agent: Agent[Any], input_type: Any = None) -> Self:
        """Return the arguments of an agent, or of a type that it takes as its input."""
        if input_type is not None:
            return cls._of_type(agent, input_type, GOAL)
        if not isinstance(agent, Pipeline):
            described = {"type": "string", "description": "What to achieve, in full."}
            return cls(agent, _one_argument(GOAL, described), GOAL)
        name = _parameter_of(agent)
        if name is None:
            return cls(agent, {"type": "object", "properties": {}}, GOAL)
        if agent.by_name is not None:
            return cls(agent, _rooted(output_schema(agent.by_name) or {}), None)
        if agent.takes_text:
            return cls(agent, _one_argument(name, {"type": "string"}), name)
        return cls._of_type(agent, agent.input, name)

    @classmethod
    def _of_type(cls, agent: Agent[Any], input_type: Any, name: str) -> Self:
        if input_type is str:
            return cls(agent, _one_argument(name, {"type": "string"}), name)
        schema = _rooted(output_schema(input_type) or {})
        if schema.get("type") == "object":
            return cls(agent, schema, None)
        # References are to the root.
        definitions = schema.pop("$defs", {})
        shared = {"$defs": definitions} if definitions else {}
        return cls(agent, {**_one_argument(name, schema), **shared}, name)

    @property
    def answer_schema(self) -> Mapping[str, Any] | None:
        """The JSON schema of the answer, with its type at the root; None if it is text."""
        schema = self.agent.answer_schema
        return None if schema is None else _rooted(schema)

    def missing(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the required arguments that are not given."""
        return [it for it in self.schema.get("required", ()) if it not in arguments]

    def problems(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return all problems of given arguments, a line each; none if they fit."""
        # Imported late: a program that defines agents does not wait for it.
        from orchestrator.agents.output.json_schema import schema_problems

        found = schema_problems(self.schema, msgspec.json.encode(arguments).decode())
        if found or not isinstance(self.agent, Pipeline):
            return found
        try:
            self.agent.parse_goal(self.goal(arguments))
        except InputError as exc:
            return (str(exc),)
        return ()

    def goal(self, arguments: Mapping[str, Any]) -> str:
        """Return the goal in arguments that fit."""
        value = arguments if self.only is None else arguments.get(self.only, "")
        agent = self.agent
        if isinstance(agent, Pipeline) and (self.only is None or not agent.takes_text):
            return msgspec.json.encode(value).decode()
        return agent.as_goal(value)


def _rooted(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of a named type with that type at its root, and not among its parts."""
    name = str(schema.get("$ref", "")).removeprefix(_REFERENCE)
    parts: Mapping[str, Any] = schema.get("$defs", {})
    if name not in parts:
        return dict(schema)
    root = {key: value for key, value in parts[name].items() if key != "title"}
    # One that is part of itself stays.
    is_used = f'"{_REFERENCE}{name}"'.encode() in msgspec.json.encode(parts)
    others = {it: of for it, of in parts.items() if it != name or is_used}
    return {**root, "$defs": others} if others else root


def _one_argument(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


def _parameter_of(agent: Pipeline[Any, Any]) -> str | None:
    """Return the name of a pipeline's input, or None if it takes no input."""
    if agent.function is None:
        return GOAL
    hints = get_type_hints(agent.function, include_extras=True)
    return next(
        (
            name
            for name in inspect.signature(agent.function).parameters
            if not is_task_context(hints.get(name))
        ),
        None,
    )
