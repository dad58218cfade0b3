"""How likely each token of an answer was, for readers who have asked a model for that."""

from collections.abc import Iterable

import attrs


@attrs.frozen
class TokenOption:
    """A token that a model could write, and how likely that was."""

    token: str
    logprob: float
    """The natural logarithm of its probability."""
    octets: tuple[int, ...] | None = None
    """Its bytes, where the provider says them: a character may be cut into several tokens."""


@attrs.frozen
class TokenLogprob(TokenOption):
    """A token that a model wrote, and what it could have written there."""

    alternatives: tuple[TokenOption, ...] = ()
    """The most likely tokens, as many as were asked for."""


def spelled_texts(tokens: Iterable[TokenLogprob]) -> tuple[str, str]:
    """Return what tokens spell, and all their alternatives, one to a line.

    A secret that is cut into tokens is in no token of them, but in what they spell.
    """
    written: list[bytes] = []
    others: list[str] = []
    for it in tokens:
        written.append(it.token.encode() if it.octets is None else bytes(it.octets))
        others += [other.token for other in it.alternatives]
    return b"".join(written).decode(errors="replace"), "\n".join(others)
