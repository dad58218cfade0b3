"""Redacts and encodes facts before they are posted.

The redacted fact is the true one: its poster goes on with it. Texts of people, models and tools are
redacted. Ids and our own words, which link facts to each other, stay unchanged, even if one of
them contains a short secret.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import attrs
import msgspec

from orchestrator.agents import AssistantMessage, Part, ReasoningBlock
from orchestrator.agents.logprobs import spelled_texts
from orchestrator.agents.redaction.redactor import LONG_TEXT, Redactor
from orchestrator.delegation import NO_TERMS, Encoded, encode, events

T = TypeVar("T")
EventT = TypeVar("EventT", bound=events.Event)

WITHOUT_TEXT: Final = frozenset[type[events.Event]](
    [
        *(
            events.TaskStarted,
            events.TurnStarted,
            events.TurnResumed,
            events.ModelCalled,
            events.CancelRequested,
            events.QuietChanged,
        ),
        *(
            events.StartsPaused,
            events.SteeringSeen,
            events.DoorOpened,
            events.DoorClosed,
            events.ReplyDelivered,
            events.CallPlaced,
        ),
    ]
)
"""Facts that hold ids and numbers alone. All others are searched for secrets."""
UNREDACTED_FIELDS: Final = frozenset(
    [
        *("session", "task", "id", "call", "parent", "needs", "forked_from"),
        *("agent", "tool", "kind", "media_type", "version", "account", "host"),
        "state",
        # Searched as a whole, with the message that has them.
        *("owner", "logprobs"),
    ]
)
"""The fields of facts that are ids, words of our own, or searched by themselves."""


class FactRedactor:
    """Encodes facts for the journal, without the secrets in their texts."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def encode(self, event: EventT) -> tuple[EventT, Encoded]:
        """Return a fact as it may be written down, and its bytes."""
        encoded = encode(event)
        kind = type(event)
        if kind in WITHOUT_TEXT:
            return event, encoded
        if kind in ONLY_TEXTS and (texts := ONLY_TEXTS[kind](event)) is not None:
            clean = self._redactor.clean
            for text in texts:
                if text and text not in clean and not self._redactor.is_clean(text):
                    break
            else:
                return event, encoded
        # Files are base64 in the JSON, so a search misses what is in them.
        parts = _parts_of(event)
        has_files = bool(parts) and any(part.data for part in parts)
        # So are secrets that are cut into tokens.
        fact: Any = event
        answer = fact if kind is events.ModelAnswered else None
        if kind is events.TaskSettled:
            answer = fact.answer
        has_tokens = answer is not None and bool(answer.message.logprobs)
        # Long texts were searched ahead, and are searched no more; the others are short.
        is_long = len(encoded.body) > LONG_TEXT
        if not (has_files or has_tokens or is_long or self._redactor.may_hold_secret(encoded.body)):
            return event, encoded
        redacted = without_secrets(event, self._redactor)
        if redacted is event:
            return event, encoded
        encoded_again = encode(redacted)
        if encoded_again.body == encoded.body:
            return event, encoded
        return redacted, encoded_again


def _texts_of_request(event: events.TaskRequested) -> tuple[str, ...] | None:
    request = event.request
    has_more = (
        request.output_schema
        or request.handed
        or request.grants
        or request.budget
        or request.chosen
    )
    return None if has_more else (request.goal, request.context, request.label)


def _texts_of_answer(event: events.ModelAnswered) -> tuple[str, ...] | None:
    message = event.message
    if message.calls or message.reasoning or message.logprobs:
        return None
    has_more = event.settings or event.instructions
    return None if has_more else (message.text, message.model)


def _texts_of_outcome(event: events.TaskSettled | events.TurnEnded) -> tuple[str, ...] | None:
    outcome = event.outcome
    if outcome.schema_errors or outcome.recorded_traceback or outcome.recorded_evidence:
        return None
    return outcome.output, outcome.error, outcome.note


def _texts_of_end(event: events.TaskSettled) -> tuple[str, ...] | None:
    if event.answer is None:
        return _texts_of_outcome(event)
    outcome, answered = event.outcome, _texts_of_answer(event.answer)
    if answered is None or outcome.schema_errors or outcome.recorded_traceback:
        return None
    return (outcome.output, outcome.error, outcome.note, *answered)


def _texts_of_session(event: events.SessionOpened) -> tuple[str, ...] | None:
    has_more = event.history or event.metadata or event.states or event.budget or event.grants
    return None if has_more else ()


def _texts_of_message(event: events.MessageReceived) -> tuple[str, ...] | None:
    has_more = event.parts or event.context or event.grants or event.terms is not NO_TERMS
    return None if has_more else (event.text, event.instructions)


def _texts_of_result(event: events.ToolAnswered) -> tuple[str, ...] | None:
    message = event.message
    return None if message.parts or message.evidence else (message.text,)


ONLY_TEXTS: Final[Mapping[type[object], Callable[[Any], tuple[str, ...] | None]]] = {
    events.TaskRequested: _texts_of_request,
    events.ModelAnswered: _texts_of_answer,
    events.TaskSettled: _texts_of_end,
    events.TurnEnded: _texts_of_outcome,
    events.SessionOpened: _texts_of_session,
    events.MessageReceived: _texts_of_message,
    events.ToolAnswered: _texts_of_result,
}
"""The texts of the facts that every task has; None if there are more than the usual ones. They are
searched instead of the whole JSON, which is several times as long."""


def _parts_of(event: object) -> tuple[Part, ...]:
    if isinstance(event, events.MessageReceived):
        return event.parts
    if isinstance(event, events.TaskRequested):
        return tuple(part for it in event.request.handed or () for part in it.parts)
    return event.message.parts if isinstance(event, events.ToolAnswered) else ()


def without_secrets(value: T, redactor: Redactor) -> T:
    """Return a fact, or a part of one, without the secrets in its texts."""
    return cast("T", _redacted(value, redactor))


def _redacted(value: object, redactor: Redactor) -> object:
    match value:
        case enum.Enum():
            pass
        case str():
            return redactor.redact(value)
        case Mapping() | list():
            # A custom model may put anything there that JSON can carry.
            return redactor.redact_tree(msgspec.to_builtins(value, str_keys=True))
        case tuple():
            return _redacted_items(cast("tuple[object, ...]", value), redactor)
        case bytes():
            return _redacted_file(value, redactor)
        case _ if isinstance(value, msgspec.Struct) or attrs.has(type(value)):
            return _redacted_fields(value, redactor)
        case _:
            pass
    return value


def _redacted_items(items: tuple[object, ...], redactor: Redactor) -> tuple[object, ...]:
    if (known := redactor.recall_tree(items)) is not None:
        return known
    return tuple([_redacted(it, redactor) for it in items])


def _redacted_fields(value: Any, redactor: Redactor) -> object:
    is_struct = hasattr(value, "__struct_fields__")
    kind = value.__class__
    names = kind.__struct_fields__ if is_struct else [it.name for it in attrs.fields(kind)]
    changed: dict[str, object] = {}
    for name in names:
        if name in UNREDACTED_FIELDS:
            continue
        was = getattr(value, name)
        if name == "states":
            now: object = {key: _redacted_state(it, redactor) for key, it in was.items()}
        elif name == "changes":
            now = _redacted_state(was, redactor)
        else:
            now = _redacted(was, redactor)
        # Not all of a message is part of its equality; one that is the same is not copied.
        if now is not was and (now != was or isinstance(now, msgspec.Struct)):
            changed[name] = now
    if kind is AssistantMessage and value.logprobs:
        texts = spelled_texts(value.logprobs)
        if changed or any(redactor.redact(text) != text for text in texts):
            # A secret that is cut into tokens is found in none of them.
            changed["logprobs"] = ()
    if not changed:
        return value
    if kind is ReasoningBlock:
        # Its provider has signed it: what is changed cannot be sent back.
        text = changed.get("text", value.text)
        changed = {"data": {} if "data" in changed else value.data, "text": text}
    replace = msgspec.structs.replace if is_struct else attrs.evolve
    return replace(value, **changed)


def _redacted_state(fields: Mapping[str, object], redactor: Redactor) -> Mapping[str, object]:
    """Redact the values of a state; the names of its fields are words of our own."""
    return {name: redactor.redact_tree(value) for name, value in fields.items()}


def _redacted_file(data: bytes, redactor: Redactor) -> bytes:
    """Return the bytes of a file, redacted if it is text."""
    try:
        return redactor.redact(data.decode()).encode()
    except UnicodeDecodeError:
        return data
