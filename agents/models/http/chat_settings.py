"""Settings as fields of a chat completion, which the local engine takes too."""

from typing import Any

from orchestrator.agents.models.provider_table import NO_QUIRKS, Quirks
from orchestrator.agents.models.settings import ModelSettings


def settings_fields(
    settings: ModelSettings, *, has_tools: bool, quirks: Quirks = NO_QUIRKS
) -> dict[str, Any]:
    """Return settings as fields of a chat completion."""
    fields: dict[str, Any] = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        quirks.seed_field: settings.seed,
        "presence_penalty": settings.presence_penalty,
        "frequency_penalty": settings.frequency_penalty,
        "stop": list(settings.stop) or None,
        **_effort(settings.reasoning_effort, quirks),
        "logprobs": None if settings.top_logprobs is None else True,
        # Zero is the default, and not every server accepts it.
        "top_logprobs": settings.top_logprobs or None,
    }
    # Without tools, both are refused.
    if has_tools:
        fields["parallel_tool_calls"] = settings.parallel_tool_calls
        fields["tool_choice"] = _tool_choice(settings.tool_choice)
    return {name: value for name, value in fields.items() if value is not None}


def _effort(effort: str | None, quirks: Quirks) -> dict[str, Any]:
    if effort is None:
        return {}
    match quirks.effort:
        case "reasoning_effort":
            return {"reasoning_effort": effort}
        case "reasoning":
            return {"reasoning": {"effort": effort}}
        case "thinking":
            if effort == "none":
                return {"thinking": {"type": "disabled"}}
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}


def _tool_choice(choice: str | None) -> str | dict[str, Any] | None:
    if choice in {None, "auto", "none", "required"}:
        return choice
    return {"type": "function", "function": {"name": choice}}
