"""A client that asks for it sees what a joined team does before there is an answer."""

import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    ModelRequest,
    ReasoningBlock,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from orchestrator.testing import hand_on
from tests.kit import FunctionModel
from tests.server.chat_kit import HELLO
from tests.server.kit import serving
from tests.server.streaming_kit import speaker

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning"),
]

KEY = "sk-proj-" + "1234567890abcdef"


def team(go: trio.Event) -> Agent:
    reader = Agent("reader", model=speaker((go, "found")))
    thinks = (ReasoningDelta(f"I know {KEY[:12]}"), ReasoningDelta(f"{KEY[12:]}, hm"))
    model = speaker((*thinks, ReasoningDelta("m. "), hand_on("dig")), "It is Lima.")
    return Agent("boss", model=model, delegates=[reader])


async def test_reasoning_and_delegations_are_streamed_on_request() -> None:
    go = trio.Event()
    shown: list[str] = []
    content = ""
    async with serving(team(go)) as served:
        stream = await served.openai.chat.completions.create(
            model="boss", messages=HELLO, stream=True, extra_body={"include_reasoning": True}
        )
        async for chunk in stream:
            delta = chunk.choices[0].delta
            content += delta.content or ""
            if text := delta.to_dict().get("reasoning_content"):
                shown.append(str(text))
                if "begins: " in str(text):
                    # It was shown before the child had answered.
                    go.set()

    told = "".join(shown)
    assert content == "It is Lima."
    assert told.startswith("I know ***, hmm. ")
    assert KEY[8:] not in told
    assert "/boss/reader" in told
    assert "begins: dig" in told
    assert "succeeded" in told


async def test_the_answer_alone_is_streamed_by_default() -> None:
    go = trio.Event()
    go.set()
    async with serving(team(go)) as served:
        stream = await served.openai.chat.completions.create(
            model="boss", messages=HELLO, stream=True
        )
        deltas = [chunk.choices[0].delta.to_dict() async for chunk in stream]

    assert not [it for it in deltas if "reasoning_content" in it]


async def test_a_plain_answer_holds_reasoning_on_request() -> None:
    go = trio.Event()
    go.set()
    async with serving(team(go)) as served:
        create = served.openai.chat.completions.create
        answer = await create(model="boss", messages=HELLO, extra_body={"include_reasoning": True})
        message = answer.choices[0].message.to_dict()

    assert message["content"] == "It is Lima."
    assert message["reasoning_content"] == "I know ***, hmm. "


async def test_a_plain_answer_has_no_reasoning_of_the_provider_by_default() -> None:
    block = ReasoningBlock("speaker", {"type": "thinking"}, text="hm")

    async def think(_: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        return AssistantMessage("hi", usage=Usage(calls=1), reasoning=(block,))

    async with serving(Agent("quick", model=FunctionModel(think))) as served:
        answer = await served.openai.chat.completions.create(model="quick", messages=HELLO)

    assert answer.choices[0].message.content == "hi"
    assert "reasoning_content" not in answer.choices[0].message.to_dict()


async def test_a_thought_is_shown_however_fast_the_answer_is() -> None:
    """The model says all of it in one step, and nothing waits for a reader."""

    class Quick:
        name = "quick"

        async def answer(self, request: ModelRequest) -> AssistantMessage:
            await trio.lowlevel.checkpoint()
            request.tell(ReasoningDelta("Let me see. "))
            request.tell(TextDelta("It is Lima."))
            return AssistantMessage("It is Lima.", usage=Usage(calls=1))

    async with serving(Agent("quick", model=Quick())) as served:
        for _ in range(20):
            stream = await served.openai.chat.completions.create(
                model="quick", messages=HELLO, stream=True, extra_body={"include_reasoning": True}
            )
            told = [
                str(chunk.choices[0].delta.to_dict().get("reasoning_content") or "")
                async for chunk in stream
            ]
            assert "".join(told) == "Let me see. "
