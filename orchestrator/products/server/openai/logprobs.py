"""The log probabilities of an answer's tokens, in OpenAI's format, for a client that asks.

They come with the durable message, not with the live text: only then is it certain that they have
no secret.
"""

from collections.abc import Sequence

import msgspec

from orchestrator.agents.logprobs import TokenLogprob, TokenOption


class Option(msgspec.Struct):
    """An alternative token."""

    token: str
    logprob: float
    bytes: list[int]


class Logprob(Option):
    """A token of an answer."""

    top_logprobs: list[Option]


class ChatLogprobs(msgspec.Struct):
    """The tokens of a chat completion."""

    content: list[Logprob]
    refusal: None = None


def logprobs_of(tokens: Sequence[TokenLogprob]) -> list[Logprob]:
    return [
        Logprob(
            token=it.token,
            logprob=it.logprob,
            bytes=_bytes(it),
            top_logprobs=[
                Option(token=other.token, logprob=other.logprob, bytes=_bytes(other))
                for other in it.alternatives
            ],
        )
        for it in tokens
    ]


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> ChatLogprobs | None:
    return ChatLogprobs(logprobs_of(tokens)) if tokens else None


def _bytes(it: TokenOption) -> list[int]:
    return list(it.token.encode() if it.octets is None else it.octets)
