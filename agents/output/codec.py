"""How a type is told to a model and read from JSON: by msgspec, and in parts by pydantic.

A union is read one type after the other: the first that fits counts.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, cast, get_args

import msgspec

from orchestrator.agents.output import pydantic_types

CODECS: Final = 256
"""How many codecs are kept: a program has some dozens of types."""
REFERENCE: Final = "#/$defs/"


class Codec:
    """Reads and writes values of one type."""

    def __init__(self, type_: Any) -> None:
        # Pydantic reads a union whole, as far as it knows the types in it.
        self._alternatives = _alternatives(pydantic_types.replaced_parts(type_))

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON schema of a value. Raises `TypeError` or `NameError` if there is none."""
        schemas, parts = msgspec.json.schema_components(
            self._alternatives,
            ref_template=f"{REFERENCE}{{name}}",
            schema_hook=pydantic_types.part_schema,
        )
        schema: dict[str, Any] = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
        return with_shared_definitions({**schema, "$defs": parts})

    def read(self, text: str) -> Any:
        """Read JSON, or raise `ValueError` with its problems."""
        problems: list[str] = []
        for alternative in self._alternatives:
            try:
                if pydantic_types.is_part(alternative):
                    return pydantic_types.read_part(alternative, text)
                return msgspec.json.decode(
                    text, type=alternative, dec_hook=pydantic_types.convert_part
                )
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as exc:
                problems.append(str(exc))
            except ValueError as exc:
                problems += map(str, exc.args)
        raise ValueError(*problems)

    def convert(self, value: object) -> Any:
        """Read a value that was decoded from JSON, or raise `ValueError` with its problems."""
        return self.read(msgspec.json.encode(value).decode())

    def plain(self, value: object) -> Any:
        """Return a value as what JSON has."""
        if len(self._alternatives) == 1 and pydantic_types.is_part(self._alternatives[0]):
            try:
                return pydantic_types.plain_value(self._alternatives[0], value)
            except TypeError:
                # It is a value of another type: the reader describes the problem.
                return plain(value)
        return plain(value)


def codec_of(type_: Any) -> Codec:
    """Return the codec of a type."""
    try:
        # With its arguments: unions are equal whatever the order, and the first that fits counts.
        return _cached_codec(type_, get_args(type_))
    except TypeError:
        # Metadata in `Annotated` need not have a hash.
        return Codec(type_)


@lru_cache(maxsize=CODECS)
def _cached_codec(type_: Any, _: tuple[Any, ...]) -> Codec:
    return Codec(type_)


def plain(value: object) -> Any:
    """Return a value as plain JSON data, or raise `TypeError`, `ValueError` or `RecursionError`."""
    # Sets have no order of their own.
    return msgspec.to_builtins(
        value, str_keys=True, order="deterministic", enc_hook=pydantic_types.plain_part
    )


def _alternatives(type_: Any) -> tuple[Any, ...]:
    # One by one, since msgspec parses no union of two classes.
    return get_args(type_) if pydantic_types.is_union(type_) else (type_,)


def with_shared_definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose parts have no definitions of their own: all are at its root.

    Two different definitions of one name get two names.
    """
    shared: dict[str, object] = {}
    root = _without_definitions(schema, shared)
    return {**root, "$defs": shared} if shared else root


def _without_definitions(
    schema: Mapping[str, object], shared: dict[str, object]
) -> dict[str, object]:
    """Return a schema whose definitions are moved to those that all parts share."""
    own = cast("Mapping[str, object]", schema.get("$defs", {}))
    rest = {key: of for key, of in schema.items() if key != "$defs"}
    names = {name: _free_name(name, of, shared) for name, of in own.items()}
    # All names first: a definition may refer to itself.
    shared |= {new: own[old] for old, new in names.items()}

    def moved(part: object) -> object:
        return _moved(_renamed(part, names), shared)

    shared |= {new: moved(own[old]) for old, new in names.items()}
    return {key: moved(of) for key, of in rest.items()}


def _moved(part: object, shared: dict[str, object]) -> object:
    if isinstance(part, list | tuple):
        return [_moved(it, shared) for it in cast("Sequence[object]", part)]
    if not isinstance(part, Mapping):
        return part
    return _without_definitions(cast("Mapping[str, object]", part), shared)


def _free_name(name: str, definition: object, shared: Mapping[str, object]) -> str:
    free, number = name, 1
    while free in shared and shared[free] != definition:
        number += 1
        free = f"{name}_{number}"
    return free


def _renamed(part: object, names: Mapping[str, str]) -> object:
    """Return a part of a schema whose references use other names."""
    if all(old == new for old, new in names.items()):
        return part
    if isinstance(part, list | tuple):
        return [_renamed(it, names) for it in cast("Sequence[object]", part)]
    if isinstance(part, str) and part.startswith(REFERENCE):
        name = part.removeprefix(REFERENCE)
        return f"{REFERENCE}{names.get(name, name)}"
    if not isinstance(part, Mapping):
        return part
    items = cast("Mapping[str, object]", part).items()
    return {key: _renamed(of, names) for key, of in items}
