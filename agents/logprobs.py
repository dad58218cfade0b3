"""How likely each token of an answer was, for readers who have asked a model for that.

What could be written to a journal, and not be read again, is refused.
"""

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import force_setattr

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.type_checks import has_type


def _text(token: str) -> str:
    if not has_type(token, str):
        raise DefinitionError(f"a token is a text, not {token!r}")
    return token if token.isascii() else token.encode(errors="replace").decode()


def _finite(number: float) -> float:
    if not has_type(number, int, float) or not math.isfinite(number):
        raise DefinitionError(f"a log probability is a finite number, not {number!r}")
    return float(number)


def _octets(octets: Iterable[int] | None) -> tuple[int, ...] | None:
    try:
        return None if octets is None else tuple(bytes(octets))
    except (TypeError, ValueError) as exc:
        raise DefinitionError(f"the octets of a token are bytes: {exc}") from exc


class TokenOption(msgspec.Struct, frozen=True, gc=False):
    """A token that a model could write, and how likely that was."""

    token: str
    logprob: float
    """The natural logarithm of its probability."""
    octets: tuple[int, ...] | None = None
    """Its bytes, where the provider says them: a character may be cut into several tokens."""

    def __post_init__(self) -> None:
        force_setattr(self, "token", _text(self.token))
        force_setattr(self, "logprob", _finite(self.logprob))
        force_setattr(self, "octets", _octets(self.octets))


def _options(options: Iterable[TokenOption]) -> tuple[TokenOption, ...]:
    found = tuple(options)
    if not all(has_type(it, TokenOption) for it in found):
        raise DefinitionError(f"the alternatives of a token are TokenOptions, not {found!r}")
    return found


class TokenLogprob(TokenOption, frozen=True, gc=False):
    """A token that a model wrote, and its alternatives."""

    alternatives: tuple[TokenOption, ...] = ()
    """The most likely tokens, as many as were asked for."""

    def __post_init__(self) -> None:
        TokenOption.__post_init__(self)
        force_setattr(self, "alternatives", _options(self.alternatives))


def spelled_texts(tokens: Iterable[TokenLogprob]) -> tuple[str, str]:
    """Return the text of tokens and of all their alternatives, one to a line.

    A secret that is split into tokens is found only in the joined text.
    """
    written: list[bytes] = []
    others: list[str] = []
    for it in tokens:
        written.append(it.token.encode() if it.octets is None else bytes(it.octets))
        others += [other.token for other in it.alternatives]
    return b"".join(written).decode(errors="replace"), "\n".join(others)
