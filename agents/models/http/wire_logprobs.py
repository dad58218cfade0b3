"""Log probabilities as OpenAI's protocols have them: the same in both."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from orchestrator.agents.logprobs import TokenLogprob, TokenOption


class WireOption(msgspec.Struct):
    """A token that could have been written."""

    token: str
    logprob: float
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None


class WireLogprob(WireOption):
    """A token that was written."""

    top_logprobs: list[WireOption] | None = None


def read_logprobs(tokens: Sequence[WireLogprob] | None) -> list[TokenLogprob]:
    return [
        TokenLogprob(
            it.token,
            it.logprob,
            _octets(it),
            tuple(
                TokenOption(other.token, other.logprob, _octets(other))
                for other in it.top_logprobs or ()
            ),
        )
        for it in tokens or ()
    ]


def _octets(it: WireOption) -> tuple[int, ...] | None:
    if it.bytes is None:
        return None
    # The usual bytes of a token are not written down with every token.
    return None if bytes(it.bytes) == it.token.encode() else tuple(it.bytes)
