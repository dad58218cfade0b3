"""The log probabilities of tokens: what a journal could not carry is refused."""

import math
from typing import Any

import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    Usage,
    UserMessage,
    take_turn,
)
from orchestrator.agents.logprobs import TokenLogprob, TokenOption, spelled_texts
from orchestrator.delegation import TaskId, decode, encode
from orchestrator.delegation.events import ModelAnswered
from tests.agents.turn_kit import MemoryHost


class Answers:
    """A model that gives one answer."""

    name = "answers"

    def __init__(self, answer: AssistantMessage) -> None:
        self._answer = answer

    async def answer(self, request: object) -> AssistantMessage:
        del request
        await trio.lowlevel.checkpoint()
        return self._answer


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((3, -1.0), "a token is a text"),
        (("a", math.nan), "finite number"),
        (("a", -math.inf), "finite number"),
        (("a", "-1"), "finite number"),
        (("a", -1.0, [256]), "octets"),
        (("a", -1.0, 3.5), "octets"),
        (("a", -1.0, None, [("b", -2.0)]), "TokenOptions"),
    ],
)
def test_an_invalid_log_probability_is_refused(given: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        TokenLogprob(*given)


def test_a_fact_carries_them_and_tokens_spell_cut_characters() -> None:
    face = "🙂".encode()
    tokens = (
        TokenLogprob("a", -1, None, (TokenOption("b", -2.5), TokenOption("\ud800", -9))),
        TokenLogprob("\\xf0\\x9f", -0.5, tuple(face[:2])),
        TokenLogprob("\\x99\\x82", 0, tuple(face[2:])),
    )
    said = AssistantMessage("a🙂", (), Usage(calls=1), "m", logprobs=tokens)
    fact: Any = decode(encode(ModelAnswered(TaskId("t_1"), said)))

    assert fact.message.logprobs == tokens
    assert spelled_texts(tokens) == ("a🙂", "b\n?")


@pytest.mark.parametrize("wrong", [None, ["a"], ("a",), "a"])
async def test_invalid_log_probabilities_of_a_model_are_refused(wrong: Any) -> None:
    model = Answers(AssistantMessage("x", usage=Usage(calls=1), logprobs=wrong))
    with pytest.raises(DefinitionError, match="log probabilities of tokens"):
        await take_turn(
            Agent("a", model=model), [UserMessage("?")], model=model, tools=(), host=MemoryHost()
        )
