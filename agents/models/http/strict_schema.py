"""Translates the JSON schema of an answer into the strict subset that providers accept.

The strict schema may be weaker than the original, never different: an answer that fits it has the
requested fields and types. Bounds become part of a description; the reader of the answer checks
them.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

WRAPPER_FIELD: Final = "answer"

# These do not restrict which answers fit.
_REMARKS = frozenset({"default", "discriminator", "examples", "deprecated", "$schema", "$comment"})
_BOUNDS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "pattern", "format", "contentEncoding"),
        *("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
    }
)
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


class _NotStrictError(Exception):
    """No strict schema can express this."""


@attrs.frozen
class ProviderSchema:
    """A schema whose root is an object, since providers accept no other."""

    schema: Mapping[str, Any]
    is_strict: bool
    is_wrapped: bool
    """The answer is a field of the requested object."""

    def unwrap(self, text: str) -> str:
        """Return the answer without its wrapper; an answer that does not fit stays unchanged."""
        if not self.is_wrapped:
            return text
        try:
            return bytes(
                msgspec.json.decode(text, type=dict[str, msgspec.Raw])[WRAPPER_FIELD]
            ).decode()
        except (msgspec.MsgspecError, KeyError):
            return text


def provider_schema(output: Mapping[str, Any]) -> ProviderSchema:
    """Return the schema to send for answers that fit this JSON schema."""
    whole, is_wrapped = _with_an_object_as_root(output)
    try:
        strict = _strict(whole)
    except _NotStrictError:
        return ProviderSchema(whole, is_strict=False, is_wrapped=is_wrapped)
    return ProviderSchema(strict, is_strict=True, is_wrapped=is_wrapped)


def _with_an_object_as_root(output: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    definitions = output.get("$defs", {})
    root = {key: value for key, value in output.items() if key != "$defs"}
    if (reference := root.get("$ref")) is not None:
        root = definitions.get(reference.rpartition("/")[2], root)
    is_wrapped = root.get("type") != "object"
    if is_wrapped:
        root = {
            "type": "object",
            "properties": {WRAPPER_FIELD: root},
            "required": [WRAPPER_FIELD],
            "additionalProperties": False,
        }
    return {**root, **({"$defs": definitions} if definitions else {})}, is_wrapped


def _strict(schema: Any) -> dict[str, Any]:
    match schema:
        case {"$ref": str(reference)}:
            # Providers refuse anything beside a reference, also a description.
            return {"$ref": reference}
        case {"anyOf": options}:
            body: dict[str, Any] = {"anyOf": [_strict(option) for option in options]}
        case {"enum": values}:
            body = {"enum": values}
        case {"const": value}:
            body = {"const": value}
        case {"type": "object", "properties": properties} if isinstance(
            schema.get("additionalProperties", False), bool
        ):
            body = {
                "type": "object",
                "properties": {name: _strict(of) for name, of in properties.items()},
                # An optional field may always be given.
                "required": list(properties),
                "additionalProperties": False,
            }
        case {"type": "array", "items": items} if "prefixItems" not in schema:
            body = {"type": "array", "items": _strict(items)}
        case {"type": str(scalar)} if scalar in _SCALARS:
            body = {"type": scalar}
        case _:
            raise _NotStrictError
    return {**body, **_beside(schema, body)}


def _beside(schema: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    beside: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$defs":
            beside[key] = {name: _strict(of) for name, of in value.items()}
        elif key in {"title", "description"}:
            beside[key] = value
        elif key in _BOUNDS:
            bounds[key] = value
        elif key not in body and key not in _REMARKS and key != "type":
            raise _NotStrictError
    if bounds:
        described = beside.get("description", "")
        as_text = msgspec.json.encode(bounds).decode()
        beside["description"] = f"{described} {as_text}".strip()
    return beside
