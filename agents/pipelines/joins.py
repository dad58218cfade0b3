"""The check that the answer of one agent can be the input of the next, by their types.

It compares JSON schemas, because values travel as JSON. An unknown combination passes: a refused
join would fail for every value.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.output.codec import codec_of

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
DEEPEST: Final = 8
"""Types that contain themselves are compared so far down."""


def join_problem(output: Any, input_type: Any) -> str | None:
    """Return why no answer of one type is an input of the other; None if some may be."""
    # A text is taken unchanged, and any other value as JSON.
    if output == input_type or input_type in {str, Any}:
        return None
    try:
        given = TEXT if output is str else codec_of(output).schema
        wanted = codec_of(input_type).schema
    except (TypeError, NameError, DefinitionError):
        return None
    return _misfit(given, wanted, given, wanted, DEEPEST)


def _misfit(
    given: Schema, wanted: Schema, given_root: Schema, wanted_root: Schema, depth: int
) -> str | None:
    problems: list[str] = []
    for one in _alternatives(given, given_root):
        for other in _alternatives(wanted, wanted_root):
            problem = _single_misfit(one, other, given_root, wanted_root, depth) if depth else None
            if problem is None:
                return None
            problems.append(problem)
    return problems[0] if problems else None


def _alternatives(schema: Schema, root: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        yield from _alternatives(root.get("$defs", {}).get(name, {}), root)
    elif parts := schema.get("anyOf") or schema.get("oneOf"):
        for part in parts:
            yield from _alternatives(part, root)
    else:
        yield schema


def _single_misfit(
    one: Schema, other: Schema, one_root: Schema, other_root: Schema, depth: int
) -> str | None:
    given, wanted = _kinds(one), _kinds(other)
    if given and wanted and not given & wanted:
        return f"a value of JSON's type {_listed(given)} is none of type {_listed(wanted)}"
    if "object" in given & wanted:
        return _object_misfit(one, other, one_root, other_root, depth)
    items, wanted_items = one.get("items"), other.get("items")
    if isinstance(items, Mapping) and isinstance(wanted_items, Mapping):
        problem = _misfit(
            cast("Schema", items), cast("Schema", wanted_items), one_root, other_root, depth - 1
        )
        return problem and f"of its items, {problem}"
    return None


def _object_misfit(
    one: Schema, other: Schema, one_root: Schema, other_root: Schema, depth: int
) -> str | None:
    properties: Mapping[str, Schema] | None = one.get("properties")
    if properties is None:
        return None
    for name in other.get("required", ()):
        if name not in properties:
            return f"it has no {name!r}"
        wanted: Schema = other.get("properties", {}).get(name, {})
        if problem := _misfit(properties[name], wanted, one_root, other_root, depth - 1):
            return f"of {name!r}, {problem}"
    return None


def _kinds(schema: Schema) -> set[str]:
    """Return the JSON types of the values of a schema; none if it does not say."""
    kind = schema.get("type")
    if isinstance(kind, str):
        kinds = {kind}
    elif isinstance(kind, list):
        kinds = {str(it) for it in cast("list[object]", kind)}
    elif values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        kinds = {_kind_of(value) for value in values}
    else:
        return set()
    # Every whole number is a number.
    return kinds | {"number"} if "integer" in kinds else kinds


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "object" if isinstance(value, Mapping) else "array"


def _listed(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds - {"number"} if "integer" in kinds else kinds))
