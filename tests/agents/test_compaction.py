"""However long the work becomes, the request fits, and the transcript stays as it was."""

from collections.abc import Sequence

import attrs
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import (
    AssistantMessage,
    CallId,
    DefinitionError,
    Failure,
    Message,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Part,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    UserMessage,
)
from agents.models.model import Compacted
from agents.models.token_estimate import estimated_tokens
from agents.models.wrappers.compaction import SUMMARIES_KEPT, SUMMARY, compacting
from orchestrator.testing import SpyModel
from tests.kit import FunctionModel

WINDOW = 10_000
GOAL = UserMessage("find the answer")


def spy(says: str = "42", refuses_over: int = 10**9) -> SpyModel:
    """Return a model that answers alike, unless a request is too long for it."""

    async def answer(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        if estimated_tokens(request) > refuses_over:
            raise ModelError("8192 is the most", kind=Failure.CONTEXT_TOO_LONG)
        request.tell(TextDelta(says))
        return AssistantMessage(says, usage=Usage(calls=1, input_tokens=7, cost=3))

    return SpyModel(FunctionModel(answer), name="listens")


def step(number: int, *results: str, thought: str = "") -> list[Message]:
    """Return an answer with calls, and what the tools said."""
    ids = [CallId(f"{number}.{index}") for index in range(len(results))]
    calls = tuple(ToolCall("look", {"at": number}, id=one) for one in ids)
    output = [ToolMessage(one, text) for one, text in zip(ids, results, strict=True)]
    return [AssistantMessage(thought, calls), *output]


def steps(count: int, result: int = 0, thought: int = 0) -> list[Message]:
    made = (step(n, "r" * result, thought="t" * thought) for n in range(count))
    return [GOAL, *(message for one in made for message in one)]


async def ask(
    model: Model, transcript: Sequence[Message], events: list[ModelEvent] | None = None
) -> AssistantMessage:
    return await model.answer(
        ModelRequest(
            instructions="be quick",
            transcript=transcript,
            tools=(),
            tell=(events if events is not None else []).append,
        )
    )


def compactions(events: list[ModelEvent]) -> list[Compacted]:
    return [event for event in events if isinstance(event, Compacted)]


def test_it_is_called_what_the_model_is_called() -> None:
    assert compacting(ScriptedModel([]), window=WINDOW).name == "scripted"


@pytest.mark.parametrize(("window", "keep_last"), [(1999, 4), (WINDOW, 0)])
def test_a_window_without_room_is_refused(window: int, keep_last: int) -> None:
    with pytest.raises(DefinitionError, match=f"{window=}, {keep_last=}"):
        compacting(ScriptedModel([]), window=window, keep_last=keep_last)


async def test_what_fits_is_asked_as_it_is() -> None:
    model, events = spy(), list[ModelEvent]()
    transcript = steps(10, result=2000)

    answer = await ask(compacting(model, window=WINDOW), transcript, events)

    assert model.requests[0].transcript == tuple(transcript)
    assert events == [TextDelta("42")]
    assert answer.usage == Usage(calls=1, input_tokens=7, cost=3)


async def test_the_oldest_results_are_shortened_first() -> None:
    model, events = spy(), list[ModelEvent]()
    transcript = steps(16, result=2000)
    before = list(transcript)

    await ask(compacting(model, window=WINDOW), transcript, events)

    (asked,) = model.requests
    results = [one.text for one in asked.transcript if isinstance(one, ToolMessage)]
    short = "r" * 200 + " [1800 more characters were left out]"
    dropped = results.count(short)
    assert 0 < dropped < 14
    assert results == [short] * dropped + ["r" * 2000] * (16 - dropped)
    assert compactions(events) == [
        Compacted(dropped, dropped * (2000 - len(short)), summarized=False)
    ]
    assert isinstance(events[0], Compacted)
    assert transcript == before


async def test_the_next_requests_begin_like_the_one_before() -> None:
    """Providers cache what a request has in common with the one before."""
    model = spy()
    compact = compacting(model, window=WINDOW)
    for count in (15, 16, 17):
        await ask(compact, steps(count, result=2000))

    first, second, third = (request.transcript for request in model.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


async def test_a_failure_and_a_short_result_stay_what_they_are() -> None:
    model = spy()
    failed = ToolMessage(CallId("0.0"), "f" * 20_000, failed=True)
    transcript = [
        GOAL,
        *step(0, ""),
        *step(1, "s" * 210),
        *step(2, "x" * 20_000),
        *step(3, "", ""),
        *step(4, ""),
    ]
    transcript[2] = failed

    await ask(compacting(model, window=WINDOW), transcript)

    asked = model.requests[0].transcript
    assert isinstance(asked[2], ToolMessage)
    assert asked[2].failed
    assert asked[2].text.startswith("f" * 200 + " [19800 more")
    assert asked[4] == transcript[4]


async def test_results_that_the_model_has_not_read_are_never_shortened() -> None:
    model = spy()
    unread = step(99, *["u" * 2000] * 8)

    await ask(
        compacting(model, window=WINDOW, keep_last=1),
        [*steps(10, result=2000), *unread],
    )

    assert model.requests[0].transcript[-9:] == tuple(unread)


async def test_then_a_summary_stands_between_the_goal_and_the_newest() -> None:
    model, writer, events = spy(), spy("it looked"), list[ModelEvent]()
    transcript = steps(20, result=100, thought=2000)

    answer = await ask(
        compacting(model, window=WINDOW, summarizer=writer), transcript, events
    )

    summary = UserMessage(SUMMARY + "it looked")
    assert model.requests[0].transcript == (GOAL, summary, *transcript[-4:])
    (event,) = compactions(events)
    assert (event.messages, event.summarized) == (36, True)
    assert event.characters > 36_000
    assert [one for one in events if one != event] == [TextDelta("42")]
    asked = len(writer.requests)
    assert answer.usage == Usage(
        calls=1 + asked, input_tokens=7 + 7 * asked, cost=3 + 3 * asked
    )


async def test_without_a_summarizer_the_model_writes_its_summaries() -> None:
    model = ScriptedModel(["it looked", "42"])

    answer = await ask(
        compacting(model, window=WINDOW), steps(6, thought=5000, result=4)
    )

    assert answer.text == "42"
    assert answer.usage.calls == 2


async def test_a_summarizer_reads_what_happened_in_pieces_that_fit() -> None:
    writer = spy("so far")
    transcript: list[Message] = [
        GOAL,
        UserMessage("a" * 90_000),
        *steps(3)[1:],
    ]
    await ask(compacting(spy(), window=WINDOW, summarizer=writer), transcript)

    assert len(writer.requests) == 4
    assert max(map(estimated_tokens, writer.requests)) <= WINDOW * 4 // 5
    texts = [request.transcript[0].text for request in writer.requests]
    assert all("The goal: find the answer" in text for text in texts)
    assert "The summary so far: (none)" in texts[0]
    assert "The summary so far: so far" in texts[1]
    read = "".join(text.partition("The record:\n\n")[2] for text in texts)
    assert read.startswith("User: " + "a" * 90_000)
    assert "Assistant: \nCalled: look {'at': 0}\n\nResult: " in read


async def test_an_image_is_left_out_by_name() -> None:
    model, writer, events = spy(), spy("w" * 400), list[ModelEvent]()
    image = Part("image/png", data=b"png", name="cat.png")
    seen: list[Message] = [UserMessage("", (image,)) for _ in range(12)]

    await ask(
        compacting(model, window=WINDOW, summarizer=writer),
        [GOAL, *seen, *step(0, "", "", "")],
        events,
    )

    assert (
        "User: , with the file 'cat.png' (image/png)"
        in writer.requests[0].transcript[0].text
    )
    assert len(model.requests[0].transcript) == 6
    assert compactions(events)[0].messages == 12
    assert compactions(events)[0].characters >= 0


async def test_a_summary_is_written_and_paid_for_once() -> None:
    writer, model = spy("it looked"), spy()
    compact = compacting(model, window=WINDOW, summarizer=writer)
    transcript = steps(7, thought=5000)
    await ask(compact, transcript)
    asked = len(writer.requests)

    for number in range(3):
        transcript += step(10 + number, "more")
        answer = await ask(compact, transcript)
        assert answer.usage.calls == 1

    assert len(writer.requests) == asked
    assert model.requests[-1].transcript[2:] == tuple(transcript[-10:])


async def test_a_summary_that_is_outgrown_is_part_of_the_next() -> None:
    model, summaries = spy(), ["it looked"]
    writer = SpyModel(lambda _: summaries[-1])
    compact = compacting(model, window=WINDOW, summarizer=writer)
    transcript = steps(7, thought=5000)
    await ask(compact, transcript)
    summaries.append("it looked again")
    writer.requests.clear()

    transcript += step(10, "new", thought="n" * 10_000)
    transcript += step(11, "z" * 9_000, "", "")
    await ask(compact, transcript)

    (asked,) = writer.requests
    text = asked.transcript[0].text
    assert "The summary so far: it looked\n" in text
    # What was new after the first summary, and nothing that is in it.
    assert text.count("Assistant: ttt") == 2
    assert "Assistant: nnn" in text
    assert model.requests[-1].transcript[1].text == SUMMARY + "it looked again"


async def test_another_conversation_gets_its_own_summary() -> None:
    writer = spy("it looked")
    compact = compacting(spy(), window=WINDOW, summarizer=writer)
    transcript = steps(7, thought=5000)
    await ask(compact, transcript)
    asked = len(writer.requests)

    await ask(compact, [UserMessage("something else"), *transcript[1:]])

    assert len(writer.requests) == 2 * asked


async def test_the_oldest_of_too_many_summaries_is_forgotten() -> None:
    writer = spy("it looked")
    compact = compacting(spy(), window=WINDOW, summarizer=writer)
    rest = steps(6, thought=6000)[1:]
    for number in range(SUMMARIES_KEPT + 1):
        await ask(compact, [UserMessage(f"goal {number}"), *rest])
    asked = len(writer.requests)

    await ask(compact, [UserMessage("goal 1"), *rest])
    assert len(writer.requests) == asked

    await ask(compact, [UserMessage("goal 0"), *rest])
    assert len(writer.requests) > asked


async def test_what_a_summary_cost_is_told_by_the_answer_it_was_written_for() -> None:
    """Or by its failure: the next answer is given with a summary that is paid for."""
    busy = ModelError("busy", kind=Failure.OVERLOADED)
    compact = compacting(
        ScriptedModel([busy, "42"]), window=WINDOW, summarizer=spy("short")
    )
    transcript = steps(6, thought=6000)
    with pytest.raises(ModelError) as caught:
        await ask(compact, transcript)

    assert caught.value is busy
    assert busy.usage == Usage(calls=2, input_tokens=7, cost=3)
    assert (await ask(compact, transcript)).usage.cost == 0


async def test_a_summary_of_nothing_is_a_malformed_answer() -> None:
    model = compacting(ScriptedModel.always(" "), window=WINDOW)

    with pytest.raises(ModelError, match="scripted wrote nothing") as caught:
        await ask(model, steps(7, thought=6000))

    assert caught.value.kind is Failure.MALFORMED


@pytest.mark.parametrize(
    "transcript",
    [
        pytest.param([], id="nothing to leave out"),
        pytest.param([UserMessage("g" * 40_000)], id="a long goal"),
        pytest.param([GOAL, UserMessage("n" * 40_000)], id="long news"),
        pytest.param([*steps(9), *step(9, "u" * 40_000)], id="a long unread result"),
        pytest.param([*step(0, "u" * 40_000)], id="no goal"),
    ],
)
async def test_what_cannot_fit_is_too_long_and_costs_nothing(
    transcript: list[Message],
) -> None:
    model = compacting(ScriptedModel([]), window=WINDOW)
    request = ModelRequest(
        instructions="i" * (40_000 if not transcript else 0),
        transcript=transcript,
        tools=(),
    )

    with pytest.raises(ModelError, match="scripted has a window of 10000") as caught:
        await model.answer(request)

    assert caught.value.kind is Failure.CONTEXT_TOO_LONG


async def test_a_summary_that_is_too_long_itself_is_too_long() -> None:
    writer = spy("w" * 40_000)
    compact = compacting(spy(), window=WINDOW, summarizer=writer)
    for _ in range(2):
        with pytest.raises(ModelError, match="where 8000 can be used") as caught:
            await ask(compact, steps(6, thought=6000))
        assert caught.value.kind is Failure.CONTEXT_TOO_LONG

    assert len(writer.requests) == 1


async def test_a_summary_that_leaves_no_room_for_the_next_piece_is_too_long() -> None:
    writer = spy("w" * 40_000)

    with pytest.raises(ModelError, match="no room left to write a summary"):
        await ask(
            compacting(spy(), window=WINDOW, summarizer=writer),
            steps(20, thought=6000),
        )


async def test_a_transcript_without_a_goal_is_summarized_from_its_beginning() -> None:
    model = spy()
    transcript = steps(6, thought=6000)[1:]

    await ask(compacting(model, window=WINDOW, summarizer=spy("short")), transcript)

    summary = UserMessage(SUMMARY + "short")
    assert model.requests[0].transcript == (summary, *transcript[-4:])


async def test_a_provider_that_refuses_is_asked_once_more_with_less() -> None:
    model, events = spy(refuses_over=5_000), list[ModelEvent]()

    answer = await ask(compacting(model, window=WINDOW), steps(12, result=2000), events)

    assert answer.text == "42"
    assert len(model.requests) == 2
    assert estimated_tokens(model.requests[1]) <= WINDOW // 2
    assert [event.summarized for event in compactions(events)] == [False]


async def test_a_provider_may_refuse_what_we_think_is_short() -> None:
    """Four characters a token is a guess, and far off for some scripts."""
    model = spy(refuses_over=3_000)

    answer = await ask(compacting(model, window=100_000), steps(5, result=2000))

    assert answer.text == "42"
    assert len(model.requests) == 2


async def test_a_provider_that_refuses_twice_is_believed() -> None:
    model = spy(refuses_over=0)

    with pytest.raises(ModelError, match="8192 is the most"):
        await ask(compacting(model, window=WINDOW), steps(12, result=2000))

    assert len(model.requests) == 2


async def test_what_the_provider_said_is_kept_when_no_more_can_be_left_out() -> None:
    model = spy(refuses_over=0)

    with pytest.raises(ModelError, match="listens has a window") as caught:
        await ask(compacting(model, window=WINDOW), [GOAL])

    assert str(caught.value.__cause__) == "8192 is the most"


async def test_other_failures_are_raised_as_they_are() -> None:
    error = ModelError("no", kind=Failure.AUTH)

    with pytest.raises(ModelError) as caught:
        await ask(compacting(ScriptedModel([error, "42"]), window=WINDOW), [GOAL])

    assert caught.value is error


async def test_a_transcript_may_grow_while_the_model_thinks() -> None:
    transcript = steps(6, thought=6000)
    count = len(transcript)

    def grow(_: Transcript) -> str:
        transcript.append(UserMessage("news"))
        return "it looked"

    model = spy()
    await ask(
        compacting(model, window=WINDOW, summarizer=ScriptedModel([grow])), transcript
    )

    assert model.requests[0].transcript[2:] == tuple(transcript[count - 4 : count])


async def test_a_shorter_request_allows_as_long_an_answer_and_a_summary_any() -> None:
    model, writer = spy(), spy("a summary")
    request = ModelRequest(
        instructions="", transcript=steps(40, thought=2_000), tools=(), max_output=7
    )

    await compacting(model, window=WINDOW, summarizer=writer).answer(request)

    assert [one.max_output for one in model.requests] == [7]
    assert {one.max_output for one in writer.requests} == {None}


async def test_it_is_a_checkpoint() -> None:
    with trio.testing.assert_checkpoints():
        await ask(compacting(ScriptedModel(["42"]), window=WINDOW), [GOAL])


lengths = st.sampled_from([0, 5, 190, 210, 260, 900, 3_000, 9_000])
texts = st.builds(
    lambda length, letter: letter * length, lengths, st.sampled_from("ä\ud800x")
)
wire_messages = st.builds(UserMessage, texts)
worked = st.tuples(texts, st.lists(texts, min_size=1, max_size=5))


@st.composite
def transcripts(draw: st.DrawFn) -> list[Message]:
    """Draw a transcript: notices, answers, and steps with several calls."""
    whole: list[Message] = [draw(wire_messages)]
    for part in draw(st.lists(wire_messages | texts | worked, max_size=12)):
        if isinstance(part, UserMessage):
            whole.append(part)
        elif isinstance(part, str):
            whole.append(AssistantMessage(part))
        else:
            thought, results = part
            answer, *answers = step(len(whole), *results, thought=thought)
            # Tools that run side by side end in any order.
            whole += [answer, *draw(st.permutations(answers))]
    return whole


def check_paired(transcript: Sequence[Message]) -> None:
    waiting: set[str] = set()
    for message in transcript:
        if isinstance(message, ToolMessage):
            waiting.remove(message.call)
        else:
            assert not waiting
        if isinstance(message, AssistantMessage):
            waiting = {call.id for call in message.calls}
    assert not waiting


@settings(deadline=None)
@given(
    transcript=transcripts(),
    window=st.sampled_from([2_000, 3_000, 5_000, 10_000]),
    keep_last=st.integers(1, 6),
    summary=st.sampled_from(["short", "w" * 2_000, "w" * 9_000]),
    refuses_over=st.sampled_from([1_500, 3_000, 10**9]),
)
def test_whatever_the_transcript_the_request_is_whole_and_fits_or_is_too_long(
    transcript: list[Message],
    window: int,
    keep_last: int,
    summary: str,
    refuses_over: int,
) -> None:
    model, writer = spy(refuses_over=refuses_over), spy(summary)
    compact = compacting(model, window=window, summarizer=writer, keep_last=keep_last)
    events: list[ModelEvent] = []
    before = [attrs.evolve(message) for message in transcript]
    answer = None

    async def main() -> None:
        nonlocal answer
        try:
            answer = await ask(compact, transcript, events)
        except ModelError as exc:
            assert exc.kind is Failure.CONTEXT_TOO_LONG  # noqa: PT017

    trio.run(main)

    assert transcript == before
    newest = tuple(transcript[1:][-keep_last:])
    for request in model.requests:
        assert estimated_tokens(request) <= window * 4 // 5
        assert request.transcript[0] == transcript[0]
        assert request.transcript[len(request.transcript) - len(newest) :] == newest
        check_paired(request.transcript)
    for request in writer.requests:
        assert estimated_tokens(request) <= window * 4 // 5
    for event in compactions(events):
        assert 0 < event.messages < len(transcript)
        assert event.characters > 0
    if answer is not None:
        assert answer.usage.calls == len(model.requests) + len(writer.requests)
        is_whole = model.requests[-1].transcript == tuple(transcript)
        assert is_whole == (compactions(events) == [])
