"""The attributes of spans: models, usage, and texts."""

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchestrator.agents import ToolCall, Usage
from orchestrator.products.telemetry import conventions as names
from orchestrator.products.telemetry.span import Attributes

MAX_TEXT: Final = 32_000
"""The most characters of an attribute with content."""


def add_model(attributes: Attributes, model: str) -> None:
    """Add the provider and the name of a model."""
    provider, colon, name = model.partition(":")
    attributes[names.PROVIDER] = provider if colon else names.UNKNOWN_PROVIDER
    if model:
        attributes[names.REQUEST_MODEL] = name if colon else model


def add_usage(attributes: Attributes, usage: Usage) -> None:
    """Add the tokens and the cost of a model call."""
    attributes[names.INPUT_TOKENS] = usage.input_tokens
    attributes[names.OUTPUT_TOKENS] = usage.output_tokens
    attributes[names.OUR_COST] = usage.usd
    if usage.cached_tokens:
        attributes[names.CACHE_READ_TOKENS] = usage.cached_tokens
    if usage.cache_written_tokens:
        attributes[names.CACHE_WRITTEN_TOKENS] = usage.cache_written_tokens
    if usage.reasoning_tokens:
        attributes[names.REASONING_TOKENS] = usage.reasoning_tokens
    if usage.is_lower_bound:
        attributes[names.OUR_COST_IS_LOWER_BOUND] = True
    if usage.estimated:
        attributes[names.OUR_ESTIMATED] = True
    if usage.saved_micro_usd is not msgspec.UNSET:
        attributes[names.OUR_SAVED] = usage.saved_micro_usd / 1_000_000


def set_text(attributes: Attributes, name: str, text: str) -> None:
    """Add a text, cut to `MAX_TEXT` characters, and say so if it is cut."""
    if len(text) > MAX_TEXT:
        cut = attributes.get(names.OUR_CUT)
        attributes[names.OUR_CUT] = (*cut, name) if isinstance(cut, tuple) else (name,)
        text = text[:MAX_TEXT]
    attributes[name] = text


def message_text(role: str, text: str, calls: tuple[ToolCall, ...] = ()) -> str:
    """Return a message in the form of the conventions."""
    parts: list[Mapping[str, Any]] = []
    if text:
        parts.append({"type": "text", "content": text})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in calls
    ]
    return json_text([{"role": role, "parts": parts}])


def json_text(value: object) -> str:
    """Return a value as JSON; a value that JSON cannot have is a text."""
    return json.dumps(value, ensure_ascii=False, default=str)
