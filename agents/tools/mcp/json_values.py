"""Values of JSON from a server: a value of the wrong kind counts as empty."""

from typing import Any, cast


def object_in(value: object) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    """Return a list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []
