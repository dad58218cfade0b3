"""A small value that fits a JSON schema: the typed answer of a simulated model.

An outermost list is as long as the fan-out, since a pipeline that maps over it runs a task for each
item. Everything else is as small as the schema allows.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, cast

FORMAT_SAMPLES: Final = {
    "date": "2026-01-02",
    "date-time": "2026-01-02T03:04:05Z",
    "time": "03:04:05Z",
    "duration": "P1D",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "base64": "AAAA",
    "decimal": "1",
    "email": "somebody@example.org",
    "uri": "https://example.org/",
}


def sample_value(schema: Mapping[str, Any], *, length: int) -> Any:
    """Return plain JSON that fits a schema but for its patterns, with lists of this length."""
    return _SampleBuilder(schema, length).make(schema)


class _SampleBuilder:
    def __init__(self, root: Mapping[str, Any], length: int) -> None:
        self._root = root
        self._length = length
        self._numbers = itertools.count(1)
        self._depth = 0
        """The number of lists around the current value."""
        self._open_refs: list[str] = []
        """The definitions around the current value: a recursive one is left out if possible."""
        self._keywords: dict[str, Callable[[Any], Any]] = {
            "$ref": self._from_ref,
            "const": _unchanged,
            "enum": lambda values: values[0],
            "anyOf": self._from_any_of,
            "oneOf": self._from_any_of,
            "allOf": self._from_all_of,
        }
        """Keywords that override the type."""
        self._types: dict[str, Callable[[dict[str, Any]], Any]] = {
            "object": self._object,
            "array": self._array,
            "integer": lambda schema: int(_number(schema, step=1)),
            "number": partial(_number, step=0.5),
            "boolean": lambda _: True,
            "null": lambda _: None,
        }

    def make(self, schema: Any) -> Any:
        if not isinstance(schema, dict):
            return {}  # `true`: anything fits
        schema = cast("dict[str, Any]", schema)
        for word, make in self._keywords.items():
            if word in schema:
                return make(schema[word])
        return self._from_type(schema)

    def _from_all_of(self, parts: list[dict[str, Any]]) -> Any:
        merged: dict[str, Any] = {}
        for part in parts:
            merged |= self._resolved(part)
        return self.make(merged)

    def _from_type(self, schema: dict[str, Any]) -> Any:
        kind = schema.get("type", "object" if "properties" in schema else "string")
        if isinstance(kind, list):
            kind = cast("list[str]", kind)[0]
        return self._types[kind](schema) if kind in self._types else self._text(schema)

    def _from_ref(self, reference: str) -> Any:
        self._open_refs.append(reference)
        try:
            return self.make(self._resolved({"$ref": reference}))
        finally:
            self._open_refs.pop()

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in schema:
            return schema
        found: Any = self._root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            found = found[step]
        return cast("dict[str, Any]", found)

    def _from_any_of(self, choices: list[Any]) -> Any:
        """Make the first choice that is not null and not recursive."""
        best = [
            choice
            for choice in choices
            if choice.get("type") != "null" and choice.get("$ref") not in self._open_refs
        ]
        nothing = [choice for choice in choices if choice.get("type") == "null"]
        return self.make((best or nothing or choices)[0])

    def _object(self, schema: dict[str, Any]) -> dict[str, Any]:
        properties: dict[str, Any] = schema.get("properties", {})
        required = schema.get("required", ())
        # Include optional lists too: a pipeline may map over them.
        return {
            name: self.make(part)
            for name, part in properties.items()
            if name in required or "items" in part
        }

    def _array(self, schema: dict[str, Any]) -> list[Any]:
        first = [self.make(part) for part in schema.get("prefixItems", ())]
        least: int = schema.get("minItems", 0)
        most: int | None = schema.get("maxItems")
        items = schema.get("items", not first)
        # An inner list has one item: a pipeline may map over it, too. Deeper lists are empty, since
        # their types may be recursive.
        count = max(least, (self._length, 1, 0)[min(self._depth, 2)])
        count = count if most is None else min(count, most)
        if items is False or count <= len(first):
            return first
        self._depth += 1
        try:
            return first + [self.make(items) for _ in range(count - len(first))]
        finally:
            self._depth -= 1

    def _text(self, schema: dict[str, Any]) -> str:
        if (form := schema.get("format") or schema.get("contentEncoding")) in FORMAT_SAMPLES:
            return FORMAT_SAMPLES[form]
        # Texts are numbered, so that the items of a list differ.
        text = f"text {next(self._numbers)}".ljust(schema.get("minLength", 0), ".")
        return text[: schema.get("maxLength")]


def _unchanged(value: Any) -> Any:
    return value


def _number(schema: dict[str, float], *, step: float) -> float:
    step = schema.get("multipleOf", step)
    if "minimum" in schema:
        low = schema["minimum"]
    elif "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + step
    elif "maximum" in schema:
        return min(step, schema["maximum"])
    elif "exclusiveMaximum" in schema:
        return min(step, schema["exclusiveMaximum"] - step)
    else:
        return step
    # The first multiple that is large enough.
    return -(-low // step) * step if "multipleOf" in schema else low
