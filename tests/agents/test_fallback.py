"""When one model fails, the next is asked, and everybody can see which one answered."""

import pytest
import trio

from agents import (
    AssistantMessage,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    ScriptedModel,
    Switched,
    TextDelta,
)
from agents.models.wrappers.fallback import fallback
from agents.models.wrappers.retry import RETRACTED

STAYS = [Failure.BAD_REQUEST, Failure.REFUSED, Failure.CONTEXT_TOO_LONG]
MOVES = [kind for kind in Failure if kind not in STAYS]


class Named:
    """Says what it is told to, under a name."""

    def __init__(self, name: str, said: str | Failure, *, signs: bool = True) -> None:
        self.name = name
        self._said = said
        self._signs = signs
        self.asked = 0

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if isinstance(self._said, Failure):
            raise ModelError(f"{self.name} is {self._said.value}", kind=self._said)
        request.tell(TextDelta(self._said))
        return AssistantMessage(self._said, model=self.name if self._signs else "")


async def ask(model: Model, told: list[ModelEvent] | None = None) -> AssistantMessage:
    tell = (told if told is not None else []).append
    return await model.answer(
        ModelRequest(instructions="", transcript=(), tools=(), tell=tell)
    )


def test_it_is_called_by_all_its_names() -> None:
    model = fallback(Named("openai:a", ""), Named("anthropic:b", ""))

    assert model.name == "openai:a | anthropic:b"
    assert fallback(Named("openai:a", "")).name == "openai:a"


async def test_the_first_answer_is_the_answer() -> None:
    other = Named("b", "two")

    answer = await ask(fallback(Named("a", "one"), other))

    assert (answer.text, answer.model, other.asked) == ("one", "a", 0)


@pytest.mark.parametrize("kind", MOVES)
async def test_most_failures_move_on_and_say_so(kind: Failure) -> None:
    told: list[ModelEvent] = []

    answer = await ask(fallback(Named("a", kind), Named("b", "two")), told)

    assert (answer.text, answer.model) == ("two", "b")
    assert told == [Switched(kind, f"a is {kind.value}", "b"), TextDelta("two")]


@pytest.mark.parametrize("kind", STAYS)
async def test_what_is_wrong_with_the_request_is_wrong_everywhere(
    kind: Failure,
) -> None:
    other = Named("b", "two")
    told: list[ModelEvent] = []

    with pytest.raises(ModelError, match=f"a is {kind.value}"):
        await ask(fallback(Named("a", kind), other), told)

    assert (other.asked, told) == (0, [])


async def test_a_caller_may_say_when_to_move_on() -> None:
    picky = Named("a", Failure.REFUSED)

    answer = await ask(fallback(picky, Named("b", "two"), on=[Failure.REFUSED]))

    assert answer.model == "b"
    with pytest.raises(ModelError, match="a is timeout"):
        await ask(
            fallback(
                Named("a", Failure.TIMEOUT), Named("b", "two"), on=[Failure.REFUSED]
            )
        )


async def test_a_caller_may_say_never_to_move_on() -> None:
    with pytest.raises(ModelError, match="a is timeout"):
        await ask(fallback(Named("a", Failure.TIMEOUT), Named("b", "two"), on=()))


async def test_when_all_have_failed_the_last_error_tells_of_the_others() -> None:
    model = fallback(
        Named("a", Failure.TIMEOUT), Named("b", Failure.AUTH), Named("c", Failure.QUOTA)
    )
    told: list[ModelEvent] = []

    with pytest.raises(ModelError, match="c is quota") as caught:
        await ask(model, told)

    assert caught.value.kind is Failure.QUOTA
    assert caught.value.__notes__ == [
        "before that, a failed: a is timeout",
        "before that, b failed: b is auth",
    ]
    assert [event.model for event in told if isinstance(event, Switched)] == ["b", "c"]


async def test_an_error_that_stops_it_tells_of_the_others_too() -> None:
    model = fallback(
        Named("a", Failure.TIMEOUT), Named("b", Failure.REFUSED), Named("c", "three")
    )

    with pytest.raises(ModelError, match="b is refused") as caught:
        await ask(model)

    assert caught.value.__notes__ == ["before that, a failed: a is timeout"]


async def test_an_answer_without_a_name_gets_one() -> None:
    unsigned = Named("b", "two", signs=False)

    assert (await ask(fallback(Named("a", Failure.AUTH), unsigned))).model == "b"
    assert (await ask(fallback(unsigned, Named("a", "one")))).model == "b"


async def test_a_model_that_asks_others_says_who_of_them_answered() -> None:
    inner = fallback(Named("b", Failure.AUTH), Named("c", "three"))

    assert (await ask(fallback(Named("a", Failure.AUTH), inner))).model == "c"


async def test_what_a_broken_stream_had_said_is_taken_back() -> None:
    class BreaksOff:
        name = "a"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            request.tell(TextDelta("ha"))
            raise ModelError("cut", kind=Failure.CONNECTION)

    told: list[ModelEvent] = []
    await ask(fallback(BreaksOff(), Named("b", "two")), told)

    assert told[1] == Switched(Failure.CONNECTION, "cut" + RETRACTED, "b")


async def test_an_error_of_ours_is_not_the_providers() -> None:
    other = Named("b", "two")

    with pytest.raises(ZeroDivisionError):
        await ask(fallback(ScriptedModel([ZeroDivisionError()]), other))

    assert other.asked == 0
