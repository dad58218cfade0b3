"""Settings as fields of a chat completion, which the local engine takes too."""

from typing import Any

from agents.models.settings import ModelSettings


def settings_fields(settings: ModelSettings, *, has_tools: bool) -> dict[str, Any]:
    """Return settings as fields of a chat completion."""
    fields: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "seed": settings.seed,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "reasoning_effort": settings.reasoning_effort,
        "stop": list(settings.stop) or None,
    }
    # Without tools, both are refused.
    if has_tools:
        fields["parallel_tool_calls"] = settings.parallel_tool_calls
        fields["tool_choice"] = _tool_choice(settings.tool_choice)
    return {name: value for name, value in fields.items() if value is not None}


def _tool_choice(choice: str | None) -> str | dict[str, Any] | None:
    if choice in {None, "auto", "none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}
