"""The value `ModelSettings`: how a model answers a request.

A setting without a value is left to the provider. A setting that a provider does not support is
refused before the request is sent (`settings_rules.py`), and never dropped.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import msgspec

from orchestrator.agents.errors import DefinitionError

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: Final = get_args(ReasoningEffort)
CacheTime: TypeAlias = Literal["5m", "1h"]
FREE_CHOICES: Final = frozenset({"auto", "none"})
"""The choices of tools that let a model answer without a call."""


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    try:
        return (given,) if isinstance(given, str) else tuple(given)
    except TypeError as exc:
        raise DefinitionError(
            f"ModelSettings(stop={given!r}) must be texts that are not empty"
        ) from exc


def _between(low: float, high: float) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        del instance
        if value is None:
            return
        # A bool is a number in Python, and NaN is in no range.
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise _wrong(attribute, value, f"a number from {low:g} to {high:g}")

    return check


def _whole_from(low: int | None, high: float = math.inf) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        del instance
        if value is None:
            return
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or (low is not None and value < low)
            or value > high
        ):
            least = "" if low is None else f" from {low}"
            most = "" if high == math.inf else f" to {high}"
            raise _wrong(attribute, value, f"a whole number{least}{most}")

    return check


def _one_of(*allowed: object) -> Any:
    def check(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        del instance
        # By identity for True and False, since 1 == True.
        if not any(value is it or (value == it and type(value) is str) for it in allowed):
            given = ", ".join(repr(it) for it in allowed if it is not None)
            raise _wrong(attribute, value, f"one of {given}")

    return check


def _is_texts(
    instance: object, attribute: "attrs.Attribute[Any]", value: tuple[object, ...]
) -> None:
    del instance
    if not all(isinstance(text, str) and text for text in value):
        raise _wrong(attribute, value, "texts that are not empty")


def _is_name(instance: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    del instance
    if value is not None and not (isinstance(value, str) and value):
        raise _wrong(attribute, value, "'auto', 'required', 'none' or the name of a tool")


def _as_json_object(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a copy of the extra body of a request, which must be a JSON object."""
    try:
        return msgspec.json.decode(msgspec.json.encode(given), type=dict[str, Any])
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise DefinitionError(
            f"ModelSettings(extra={given!r}) must be a mapping that JSON can carry: {exc}"
        ) from exc


def _wrong(attribute: "attrs.Attribute[Any]", value: object, wanted: str) -> DefinitionError:
    return DefinitionError(f"ModelSettings({attribute.name}={value!r}) must be {wanted}")


@attrs.frozen(kw_only=True)
class ModelSettings:
    """How the models of one agent are to answer. No child inherits them."""

    temperature: float | None = attrs.field(default=None, validator=_between(0, 2))
    top_p: float | None = attrs.field(default=None, validator=_between(0, 1))
    max_output_tokens: int | None = attrs.field(default=None, validator=_whole_from(1, 2**53))
    """How many tokens an answer may have, its reasoning included. A budget reserves no more."""
    reasoning_effort: ReasoningEffort | None = attrs.field(
        default=None, validator=_one_of(None, *EFFORTS)
    )
    """How much a model is to think before it answers."""
    seed: int | None = attrs.field(default=None, validator=_whole_from(None))
    stop: tuple[str, ...] = attrs.field(default=(), converter=_texts, validator=_is_texts)
    """Texts at which an answer ends."""
    parallel_tool_calls: bool | None = attrs.field(
        default=None, validator=_one_of(None, True, False)
    )
    """Whether one answer may have several calls."""
    prompt_caching: bool | CacheTime | None = attrs.field(
        default=None, validator=_one_of(None, True, False, "5m", "1h")
    )
    """Whether the provider caches the start of a request, and for how long."""
    presence_penalty: float | None = attrs.field(default=None, validator=_between(-2, 2))
    frequency_penalty: float | None = attrs.field(default=None, validator=_between(-2, 2))
    tool_choice: str | None = attrs.field(default=None, validator=_is_name)
    """`"auto"`, `"none"`, `"required"` or the name of a tool. The last two hold for the first
    answer of a turn: a model that always has to call would never end."""
    top_logprobs: int | None = attrs.field(default=None, validator=_whole_from(0, 20))
    """Asks how likely each token of an answer was (`AssistantMessage.logprobs`), and this many of
    the tokens that could have been there; 0 asks for the written ones alone."""
    extra: Mapping[str, Any] = attrs.field(
        factory=dict[str, Any], converter=_as_json_object, hash=False
    )
    """Further fields of the request, as the provider calls them."""

    def over(self, other: "ModelSettings") -> "ModelSettings":
        """Return these settings, and those of `other` where these say nothing.

        The fields of `extra` are put over the other's one by one.
        """
        if other is NO_SETTINGS or self is NO_SETTINGS:
            return self if other is NO_SETTINGS else other
        given = {**self._given(), "extra": {**other.extra, **self.extra}}
        return attrs.evolve(other, **given)

    def after_first_answer(self) -> "ModelSettings":
        """Return the settings of the later answers of a turn."""
        if self.tool_choice is None or self.tool_choice in FREE_CHOICES:
            return self
        return attrs.evolve(self, tool_choice=None)

    def as_fields(self) -> dict[str, Any]:
        """Return the settings that are given, as JSON has them."""
        fields = self._given()
        if "stop" in fields:
            fields["stop"] = list(self.stop)
        return fields

    def _given(self) -> dict[str, Any]:
        values = ((it.name, getattr(self, it.name)) for it in attrs.fields(ModelSettings))
        return {name: value for name, value in values if value not in (None, (), {})}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.as_fields().items())


NO_SETTINGS: Final = ModelSettings()
