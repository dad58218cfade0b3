"""A form of a server, as a person fills it in who answers a question with a word.

The reason of the answer is the form, if it is a JSON object. Without one, yes is the answer to
every box, and the defaults are to all else; a form that needs more than that is declined.
"""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.output.json_schema import schema_problems
from orchestrator.agents.tools.mcp.json_values import list_in, object_in


def filled_form(form: Mapping[str, Any], reason: str) -> Mapping[str, Any] | None:
    """Return the form that a person has filled in, or None if it does not fit."""
    content = _given(reason) or _assumed(form)
    try:
        problems = schema_problems(form, json.dumps(content))
    except DefinitionError:
        return None
    return None if problems else content


def needs_words(form: Mapping[str, Any]) -> bool:
    """Return whether a plain yes is not enough for a form."""
    return filled_form(form, "") is None


def _given(reason: str) -> dict[str, Any]:
    try:
        return object_in(json.loads(reason))
    except ValueError:
        return {}


def _assumed(form: Mapping[str, Any]) -> dict[str, Any]:
    assumed: dict[str, Any] = {}
    for name, field in object_in(form.get("properties")).items():
        rules = object_in(field)
        if "default" in rules:
            assumed[name] = rules["default"]
        elif rules.get("type") == "boolean" and name in list_in(form.get("required")):
            assumed[name] = True
    return assumed
