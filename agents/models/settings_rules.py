"""The settings that each protocol carries, as data: others are refused before a request is sent."""

import math
from collections.abc import Iterator
from typing import Final

import attrs

from orchestrator.agents.models.settings import EFFORTS, FREE_CHOICES, ModelSettings

LEAST_THINKING: Final = 1_024
"""The fewest tokens that a model of the messages protocol thinks in."""
LEAST_TOP_P: Final = 0.95


@attrs.frozen(kw_only=True)
class SettingsRules:
    """The `ModelSettings` that a service supports."""

    cannot: frozenset[str] = frozenset()
    """The settings that it does not have."""
    highest_temperature: float = 2.0
    most_stops: int | None = None
    efforts: frozenset[str] = frozenset(EFFORTS)
    caches_by_itself: bool = True
    """It caches without being asked, and for as long as it likes."""
    thinks_alone: bool = False
    """While it thinks, it takes neither a temperature nor a forced call."""
    reserved: frozenset[str] = frozenset()
    """The fields of a request that we set: the conversation, and the paid limit."""

    def problem_with(self, settings: ModelSettings) -> str | None:
        """Return what of these settings cannot be done, if anything."""
        return next(self._problems(settings), None)

    def _problems(self, settings: ModelSettings) -> Iterator[str]:
        if missing := sorted(settings.as_fields().keys() & self.cannot):
            yield f"it has no {', '.join(missing)}"
        if ours := sorted(settings.extra.keys() & self.reserved):
            yield f"extra cannot have {', '.join(ours)}: these fields are written for you"
        if (settings.temperature or 0) > self.highest_temperature:
            yield f"its temperature is at most {self.highest_temperature:g}"
        if self.most_stops is not None and len(settings.stop) > self.most_stops:
            yield f"it takes at most {self.most_stops} texts in stop"
        effort = settings.reasoning_effort
        if effort is not None and effort not in self.efforts:
            known = ", ".join(repr(it) for it in EFFORTS if it in self.efforts)
            yield f"its reasoning_effort is one of {known}"
        if self.caches_by_itself and settings.prompt_caching not in {None, True}:
            yield "it caches prompts by itself, for as long as it likes: True or nothing"
        if self.thinks_alone and effort not in {None, "none"}:
            yield from self._problems_while_it_thinks(settings)

    def _problems_while_it_thinks(self, settings: ModelSettings) -> Iterator[str]:
        if settings.temperature not in {None, 1} or (settings.top_p or 1) < LEAST_TOP_P:
            yield f"while it thinks, its temperature is 1, and top_p at least {LEAST_TOP_P}"
        if settings.tool_choice not in {None, *FREE_CHOICES}:
            yield "while it thinks, no call can be forced: tool_choice is 'auto' or 'none'"
        if (settings.max_output_tokens or math.inf) <= LEAST_THINKING:
            yield (
                f"it thinks in {LEAST_THINKING} tokens at least, so max_output_tokens must be more"
            )


CHAT_RULES: Final = SettingsRules(
    most_stops=4,
    reserved=frozenset(
        {
            *("model", "messages", "stream", "stream_options", "tools", "n"),
            *("max_tokens", "max_completion_tokens", "response_format"),
        }
    ),
)
RESPONSES_RULES: Final = SettingsRules(
    cannot=frozenset({"seed", "stop", "presence_penalty", "frequency_penalty"}),
    reserved=frozenset(
        {
            *("model", "input", "instructions", "stream", "store", "tools"),
            *("max_output_tokens", "background", "previous_response_id"),
        }
    ),
)
MESSAGES_RULES: Final = SettingsRules(
    cannot=frozenset({"seed", "presence_penalty", "frequency_penalty", "top_logprobs"}),
    highest_temperature=1.0,
    efforts=frozenset(EFFORTS) - {"minimal"},
    caches_by_itself=False,
    thinks_alone=True,
    reserved=frozenset({"model", "messages", "system", "stream", "tools", "max_tokens"}),
)
LOCAL_RULES: Final = SettingsRules(
    cannot=frozenset(
        {
            *("reasoning_effort", "parallel_tool_calls", "tool_choice"),
            *("prompt_caching", "top_logprobs"),
        }
    ),
    reserved=frozenset(
        {*("messages", "max_tokens", "stream", "return_progress", "json_schema", "n")}
    ),
)
