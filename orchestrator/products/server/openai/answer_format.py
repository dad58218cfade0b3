"""The format of an answer that a client asks for: text, a JSON object, or JSON that fits a schema.

An answer with a schema is checked and, if it does not fit, asked for once more, as for an agent
with an output type. Then only the answer is shown: a client reads all text as one JSON value.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec

from orchestrator.agents import Agent, DefinitionError, Pipeline, require_schema
from orchestrator.products.server.openai.conversation import Dialect
from orchestrator.products.server.transport.errors import bad_request

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}
ANNOTATIONS: Final = frozenset({"title", "description", "$schema", "$id", "examples"})
"""Keywords that do not affect which values fit."""
_OPENINGS: Final[Mapping[object, str]] = {"object": "{", "array": "[", "string": '"'}
_ANY_OPENING: Final = '{["-0123456789tfn'

FormatName: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$", max_length=64)
]


class PlainText(msgspec.Struct, tag_field="type", tag="text"):
    """The answer is text."""


class AnyJson(msgspec.Struct, tag_field="type", tag="json_object"):
    """The answer is a JSON object."""


class NamedSchema(msgspec.Struct, kw_only=True):
    """A JSON schema in a chat completion."""

    name: FormatName
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ChatJson(msgspec.Struct, tag_field="type", tag="json_schema"):
    """The answer is JSON that fits a schema."""

    json_schema: NamedSchema


class ResponseJson(
    msgspec.Struct, kw_only=True, tag_field="type", tag="json_schema", omit_defaults=True
):
    """The answer is JSON that fits a schema."""

    name: FormatName
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


ChatFormat: TypeAlias = PlainText | AnyJson | ChatJson
ResponseFormat: TypeAlias = PlainText | AnyJson | ResponseJson


def requested_schema(
    format_: ChatFormat | ResponseFormat | None, agent: Agent[Any], dialect: Dialect, param: str
) -> Mapping[str, Any] | None:
    """Return the schema that an answer has to fit; None if the agent's own format fits."""
    schema = ANY_OBJECT
    match format_:
        case None | PlainText():
            return None
        case AnyJson():
            pass
        case ChatJson(json_schema):
            schema = json_schema.schema or ANY_OBJECT
            param = f"{param}.json_schema.schema"
        case ResponseJson():
            schema = format_.schema
            param = f"{param}.schema"
    try:
        require_schema(schema)
    except DefinitionError as exc:
        raise dialect.invalid_value(str(exc), param) from exc
    own = agent.answer_schema
    if own is None and isinstance(agent, Pipeline):
        raise bad_request(f"{agent.name!r} is a pipeline, which answers with text", param=param)
    if own is not None and (
        _bare(own) == _bare(schema) or (isinstance(format_, AnyJson) and opening_of(own) == "{")
    ):
        return None
    return schema


def answer_opening(agent: Agent[Any], schema: Mapping[str, Any] | None) -> str:
    """Return the characters that an answer in JSON may begin with; none if it is text."""
    promised = agent.answer_schema if schema is None else schema
    return "" if promised is None else opening_of(promised)


def opening_of(schema: Mapping[str, Any]) -> str:
    """Return the characters that may begin JSON that fits a schema."""
    ref: object = schema.get("$ref")
    parts: object = schema.get("$defs")
    if isinstance(ref, str) and isinstance(parts, Mapping):
        named = cast("Mapping[str, Any]", parts)
        part = named.get(ref.removeprefix("#/$defs/"))
        if isinstance(part, Mapping):
            schema = cast("Mapping[str, Any]", part)
    kind: object = schema.get("type")
    return _OPENINGS.get(kind, _ANY_OPENING) if isinstance(kind, str) else _ANY_OPENING


def _bare(value: object) -> object:
    """Return a schema without annotations."""
    match value:
        case Mapping():
            named = cast("Mapping[str, object]", value)
            # Under `properties` these are names of fields, with a schema each.
            return {
                name: _bare(part)
                for name, part in named.items()
                if name not in ANNOTATIONS or _is_object(part)
            }
        case list() | tuple():
            parts = cast("Sequence[object]", value)
            return [_bare(part) for part in parts]
        case _:
            return value


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)
