"""Facts as versioned JSON, and back.

Facts of older versions are upgraded as they are decoded. A newer fact is refused, never guessed at.
"""

from typing import Final, get_args

import msgspec

from orchestrator.delegation.errors import MISFITS, UnreadableFactError, UnwritableFactError
from orchestrator.delegation.events.facts import Event
from orchestrator.delegation.events.upgrade import upgrade_from_2

VERSION: Final = 3
"""Raise it when the meaning of a fact changes, and upgrade the older ones in `upgrade`."""

_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}
_ENCODER: Final = msgspec.json.Encoder()
_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A fact as it is stored."""

    kind: str
    version: int
    body: bytes


def encode(event: Event) -> Encoded:
    """Return a fact as it is stored, or raise `UnwritableFactError`."""
    try:
        body = _ENCODER.encode(event)
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise UnwritableFactError(
            f"{type(event).__name__} holds what JSON cannot carry: {exc}"
        ) from exc
    return Encoded(type(event).__name__, VERSION, body)


def decode(encoded: Encoded) -> Event:
    if encoded.version > VERSION or encoded.kind not in _DECODERS:
        raise UnreadableFactError(
            f"{encoded.kind!r} in version {encoded.version}: it was written by a newer"
            " orchestrator; use that one, or a new journal"
        )
    try:
        event: Event = _DECODERS[encoded.kind].decode(encoded.body)
        return event if encoded.version == VERSION else upgrade_from_2(event)
    except MISFITS as exc:
        raise UnreadableFactError(f"a damaged {encoded.kind!r}: {exc}") from exc
