"""Values of JSON that a server may have got wrong: what is not of its kind is empty."""

from typing import Any, cast


def object_in(value: object) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    """Return a list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []
