"""The text of a session's agent, streamed as it is written and once it is durable."""

import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Failure,
    ModelError,
    Retrying,
    TextDelta,
    ToolCall,
    tool,
)
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.kernel.doors.inbound import InboundRequest, goal_message
from orchestrator.products.server.live.agent_stream import FullText, PartialText, open_agent_stream
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import ServerState, Settings
from orchestrator.testing import StreamingModel
from tests.growth import grows_at_most


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "seen"


async def heard_of(agent: Agent) -> tuple[list[str], list[str]]:
    """Return what an agent said: in pieces put together by item, and as it is kept."""
    pieces: dict[int, str] = {}
    kept: list[str] = []
    async with (
        open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {agent.name: agent}, Settings(token="x" * 16)) as state,
    ):
        session = state.journals.first.door.open_background(
            InboundRequest(agent=agent, message=goal_message(agent, "go"), kind=SessionKind.RUN)
        )
        with open_agent_stream(state.journals.first, session) as agent_stream:
            while (update := await agent_stream.next()) is not None:
                match update:
                    case PartialText(item, offset, text):
                        assert len(pieces.get(item, "")) == offset
                        pieces[item] = pieces.get(item, "") + text
                    case FullText(item, said):
                        assert item == len(kept)
                        kept.append(said.text)
        late = await all_of(state, session.id)
        assert late == kept
    return list(pieces.values()), kept


async def all_of(state: ServerState, session: str) -> list[str]:
    """Return the text that a client gets when the run is over."""
    kept: list[str] = []
    with open_agent_stream(
        state.journals.first, await state.journals.first.door.find(session)
    ) as agent_stream:
        while (update := await agent_stream.next()) is not None:
            assert isinstance(update, FullText)
            kept.append(update.message.text)
    return kept


async def test_intermediate_text_and_the_answer_are_streamed_in_pieces() -> None:
    model = StreamingModel([["let ", "me look", ToolCall("look")], ["it ", "is ", "there"]])

    pieces, kept = await heard_of(Agent("a", model=model, tools=[look]))

    assert pieces == kept == ["let me look", "it is there"]


async def test_a_retried_model_is_not_streamed_twice() -> None:
    again = Retrying(Failure.OVERLOADED, "again", 0)
    model = StreamingModel.always(TextDelta("it "), again, "it ", "is there")

    pieces, kept = await heard_of(Agent("a", model=model))

    assert pieces == kept == ["it is there"]


async def test_an_answer_without_deltas_is_kept_whole() -> None:
    pieces, kept = await heard_of(
        Agent("a", model=StreamingModel.always(AssistantMessage("all at once")))
    )

    assert (pieces, kept) == ([], ["all at once"])


async def test_the_text_before_a_failure_is_kept() -> None:
    model = StreamingModel.always("half of", ModelError("gone", partial="half of"))
    pieces, kept = await heard_of(Agent("a", model=model))

    assert pieces == kept == ["half of"]


def test_a_long_answer_takes_as_long_as_it_has_pieces() -> None:
    """And not the square of that, also where the last update was not read yet."""
    words = "word " * 20

    def hear(count: int) -> None:
        answer = AssistantMessage(words * count)
        model = StreamingModel.always(*[TextDelta(words)] * count, answer)
        clock = trio.testing.MockClock(autojump_threshold=0)
        pieces, kept = trio.run(heard_of, Agent("a", model=model), clock=clock)
        assert pieces == kept == [words * count]

    assert grows_at_most(30, hear, small=1_000, large=10_000)
