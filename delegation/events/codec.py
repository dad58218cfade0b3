"""Facts as versioned JSON, and back.

A fact of an unknown kind or version is refused, never guessed at.
"""

from typing import Final, get_args

import msgspec

from orchestrator.delegation.errors import MISFITS, UnreadableFactError, UnwritableFactError
from orchestrator.delegation.events.facts import Event

VERSION: Final = 1
"""Raise it when the meaning of a fact changes."""

_KINDS: Final = {kind.__name__: kind for kind in get_args(Event)}
_ENCODER: Final = msgspec.json.Encoder()


class _Decoders(dict[str, msgspec.json.Decoder[Event]]):
    """The decoders of facts by their kind; each is made when it is first used."""

    def __missing__(self, kind: str) -> msgspec.json.Decoder[Event]:
        decoder = self[kind] = msgspec.json.Decoder(_KINDS[kind])
        return decoder


_DECODERS: Final = _Decoders()


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """The stored form of a fact."""

    kind: str
    version: int
    body: bytes


def encode(event: Event) -> Encoded:
    """Return the stored form of a fact, or raise `UnwritableFactError`."""
    try:
        body = _ENCODER.encode(event)
    except (TypeError, ValueError, msgspec.MsgspecError) as exc:
        raise UnwritableFactError(
            f"{type(event).__name__} holds what JSON cannot carry: {exc}"
        ) from exc
    return Encoded(type(event).__name__, VERSION, body)


def decode(encoded: Encoded) -> Event:
    if encoded.version != VERSION or encoded.kind not in _KINDS:
        raise UnreadableFactError(
            f"{encoded.kind!r} in version {encoded.version}: it was written by a newer"
            " orchestrator; use that one, or a new journal"
        )
    try:
        event = _DECODERS[encoded.kind].decode(encoded.body)
    except MISFITS as exc:
        raise UnreadableFactError(f"a damaged {encoded.kind!r}: {exc}") from exc
    return event
