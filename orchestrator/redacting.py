"""Writing a fact down, without the secrets that somebody let slip in it.

What is kept is what is true: whoever posted the fact goes on with what was written.
"""

from typing import Final, TypeVar, cast

import msgspec

from agents.secrets import Redactor
from delegation import Encoded, decode, encode
from delegation.events import (
    CancelRequested,
    DoorClosed,
    DoorOpened,
    Event,
    QuietChanged,
    ReplyDelivered,
    SteeringSeen,
    TaskStarted,
    TurnResumed,
    TurnStarted,
)

EventT = TypeVar("EventT", bound=Event)

WITHOUT_TEXT: Final = (
    TaskStarted,
    TurnStarted,
    TurnResumed,
    CancelRequested,
    QuietChanged,
    SteeringSeen,
    DoorOpened,
    DoorClosed,
    ReplyDelivered,
)
"""Facts in which nobody can have let a secret slip: nothing is said in them."""


def written_down(event: EventT, redactor: Redactor) -> tuple[EventT, Encoded]:
    """Return a fact as it may be kept, and as it is stored."""
    encoded = encode(event)
    if isinstance(event, WITHOUT_TEXT) or not redactor.suspects(encoded.body):
        return event, encoded
    body = msgspec.json.encode(redactor.tree(msgspec.json.decode(encoded.body)))
    if body == encoded.body:
        return event, encoded
    encoded = Encoded(encoded.kind, encoded.version, body)
    return cast("EventT", decode(encoded)), encoded
