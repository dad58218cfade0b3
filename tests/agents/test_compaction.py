"""However long the work becomes, the request fits, and the transcript stays as it was."""

from collections.abc import Sequence

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orchestrator.agents import (
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
from orchestrator.agents.models.model import Compacted
from orchestrator.agents.models.token_estimate import estimated_tokens
from orchestrator.agents.models.wrappers.compaction import SUMMARIES_KEPT, SUMMARY, with_compaction
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
        return AssistantMessage(says, usage=Usage(calls=1, input_tokens=7, micro_usd=3))

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


def test_a_compacting_model_keeps_the_name_of_its_model() -> None:
    assert with_compaction(ScriptedModel([]), window=WINDOW).name == "scripted"


@pytest.mark.parametrize(("window", "keep_last"), [(1999, 4), (WINDOW, 0)])
def test_a_window_without_room_is_refused(window: int, keep_last: int) -> None:
    with pytest.raises(DefinitionError, match=f"{window=}, {keep_last=}"):
        with_compaction(ScriptedModel([]), window=window, keep_last=keep_last)


async def test_a_transcript_that_fits_is_sent_unchanged() -> None:
    model, events = spy(), list[ModelEvent]()
    transcript = steps(10, result=2000)

    answer = await ask(with_compaction(model, window=WINDOW), transcript, events)

    assert model.requests[0].transcript == tuple(transcript)
    assert events == [TextDelta("42")]
    assert answer.usage == Usage(calls=1, input_tokens=7, micro_usd=3)


async def test_the_oldest_results_are_shortened_first() -> None:
    model, events = spy(), list[ModelEvent]()
    transcript = steps(16, result=2000)
    before = list(transcript)

    await ask(with_compaction(model, window=WINDOW), transcript, events)

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
    """Providers cache the common start of two requests."""
    model = spy()
    compact = with_compaction(model, window=WINDOW)
    for count in (15, 16, 17):
        await ask(compact, steps(count, result=2000))

    first, second, third = (request.transcript for request in model.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


async def test_compaction_keeps_failures_and_short_results() -> None:
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

    await ask(with_compaction(model, window=WINDOW), transcript)

    asked = model.requests[0].transcript
    assert isinstance(asked[2], ToolMessage)
    assert asked[2].failed
    assert asked[2].text.startswith("f" * 200 + " [19800 more")
    assert asked[4] == transcript[4]


async def test_results_that_the_model_has_not_read_are_never_shortened() -> None:
    model = spy()
    unread = step(99, *["u" * 2000] * 8)

    await ask(
        with_compaction(model, window=WINDOW, keep_last=1), [*steps(10, result=2000), *unread]
    )

    assert model.requests[0].transcript[-9:] == tuple(unread)


async def test_then_a_summary_stands_between_the_goal_and_the_newest() -> None:
    model, writer, events = spy(), spy("it looked"), list[ModelEvent]()
    transcript = steps(20, result=100, thought=2000)

    answer = await ask(with_compaction(model, window=WINDOW, summarizer=writer), transcript, events)

    summary = UserMessage(SUMMARY + "it looked")
    assert model.requests[0].transcript == (GOAL, summary, *transcript[-4:])
    (event,) = compactions(events)
    assert (event.messages, event.summarized) == (36, True)
    assert event.characters > 36_000
    assert [one for one in events if one != event] == [TextDelta("42")]
    asked = len(writer.requests)
    assert answer.usage == Usage(
        calls=1 + asked, input_tokens=7 + 7 * asked, micro_usd=3 + 3 * asked
    )


async def test_without_a_summarizer_the_model_writes_its_summaries() -> None:
    model = ScriptedModel(["it looked", "42"])

    answer = await ask(with_compaction(model, window=WINDOW), steps(6, thought=5000, result=4))

    assert answer.text == "42"
    assert answer.usage.calls == 2


async def test_a_summarizer_reads_the_transcript_in_pieces_that_fit() -> None:
    writer = spy("so far")
    transcript: list[Message] = [GOAL, UserMessage("a" * 90_000), *steps(3)[1:]]
    await ask(with_compaction(spy(), window=WINDOW, summarizer=writer), transcript)

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
        with_compaction(model, window=WINDOW, summarizer=writer),
        [GOAL, *seen, *step(0, "", "", "")],
        events,
    )

    assert "User: , with the file 'cat.png' (image/png)" in writer.requests[0].transcript[0].text
    assert len(model.requests[0].transcript) == 6
    assert compactions(events)[0].messages == 12
    assert compactions(events)[0].characters >= 0


async def test_a_summary_is_written_and_paid_for_once() -> None:
    writer, model = spy("it looked"), spy()
    compact = with_compaction(model, window=WINDOW, summarizer=writer)
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
    compact = with_compaction(model, window=WINDOW, summarizer=writer)
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
    compact = with_compaction(spy(), window=WINDOW, summarizer=writer)
    transcript = steps(7, thought=5000)
    await ask(compact, transcript)
    asked = len(writer.requests)

    await ask(compact, [UserMessage("something else"), *transcript[1:]])

    assert len(writer.requests) == 2 * asked


async def test_the_oldest_of_too_many_summaries_is_forgotten() -> None:
    writer = spy("it looked")
    compact = with_compaction(spy(), window=WINDOW, summarizer=writer)
    rest = steps(6, thought=6000)[1:]
    for number in range(SUMMARIES_KEPT + 1):
        await ask(compact, [UserMessage(f"goal {number}"), *rest])
    asked = len(writer.requests)

    await ask(compact, [UserMessage("goal 1"), *rest])
    assert len(writer.requests) == asked

    await ask(compact, [UserMessage("goal 0"), *rest])
    assert len(writer.requests) > asked


async def test_an_answer_or_its_failure_reports_the_cost_of_its_summary() -> None:
    """Or by its failure: the next answer is given with a summary that is paid for."""
    busy = ModelError("busy", kind=Failure.OVERLOADED)
    compact = with_compaction(ScriptedModel([busy, "42"]), window=WINDOW, summarizer=spy("short"))
    transcript = steps(6, thought=6000)
    with pytest.raises(ModelError) as caught:
        await ask(compact, transcript)

    assert caught.value is busy
    assert busy.usage == Usage(calls=2, input_tokens=7, micro_usd=3)
    assert (await ask(compact, transcript)).usage.micro_usd == 0


@pytest.mark.parametrize(
    "says",
    [
        " ",
        "w" * 40_000,
        ModelError("no", kind=Failure.REFUSED),
        ModelError("no", kind=Failure.CONTEXT_TOO_LONG),
    ],
    ids=["nothing", "too much", "refuses", "too long for it"],
)
@pytest.mark.parametrize("count", [6, 30])
async def test_useless_summaries_do_not_block_a_conversation(
    says: str | ModelError, count: int
) -> None:
    model, writer = spy(), SpyModel(ScriptedModel.always(says))
    compact = with_compaction(model, window=WINDOW, summarizer=writer)
    transcript = [*steps(count, thought=6000), UserMessage("and now?")]

    for _ in range(2):
        assert (await ask(compact, transcript)).text == "42"

    for request in model.requests:
        assert request.transcript[0] == GOAL
        assert request.transcript[-1] == transcript[-1]
        assert estimated_tokens(request) <= WINDOW * 4 // 5


async def test_a_failure_of_the_writer_that_may_heal_is_raised() -> None:
    busy = ModelError("busy", kind=Failure.OVERLOADED)
    writer = ScriptedModel([busy, "short"])
    compact = with_compaction(spy(), window=WINDOW, summarizer=writer)
    with pytest.raises(ModelError) as caught:
        await ask(compact, steps(6, thought=6000))

    assert caught.value is busy
    assert (await ask(compact, steps(6, thought=6000))).text == "42"


@pytest.mark.parametrize(
    "transcript",
    [
        pytest.param([], id="nothing to leave out"),
        pytest.param([UserMessage("g" * 40_000)], id="a long goal"),
        pytest.param([GOAL, UserMessage("n" * 40_000)], id="long news"),
    ],
)
async def test_a_request_that_cannot_fit_fails_before_it_is_sent(transcript: list[Message]) -> None:
    model = with_compaction(ScriptedModel([]), window=WINDOW)
    request = ModelRequest(
        instructions="i" * (40_000 if not transcript else 0), transcript=transcript, tools=()
    )

    with pytest.raises(ModelError, match="scripted has a window of 10000") as caught:
        await model.answer(request)

    assert caught.value.kind is Failure.CONTEXT_TOO_LONG


LEFT_OUT = "characters are left out here"


async def test_a_first_message_that_fills_the_window_ends_its_own_turn_only() -> None:
    """And all later ones read its beginning and its end."""
    model = spy()
    compact = with_compaction(model, window=8_000, summarizer=spy("they talked"))
    document = "b" * 15_000 + "m" * 50_000 + "e" * 15_000
    transcript: list[Message] = [UserMessage(document)]
    with pytest.raises(ModelError) as caught:
        await ask(compact, transcript)
    assert caught.value.kind is Failure.CONTEXT_TOO_LONG

    for number in range(20):
        transcript.append(UserMessage(f"question {number}"))
        answer = await ask(compact, transcript)
        transcript.append(answer)

    assert len(model.requests) == 20
    for number, request in enumerate(model.requests):
        first, last = request.transcript[0].text, request.transcript[-1].text
        assert first.startswith("bbb")
        assert LEFT_OUT in first
        assert first.endswith("eee")
        assert last == f"question {number}"


@pytest.mark.parametrize(
    "transcript",
    [
        pytest.param([*steps(9), *step(9, "u" * 40_000)], id="of the newest exchange"),
        pytest.param([*step(0, "u" * 40_000)], id="without a goal"),
        pytest.param([GOAL, *step(9, *["u" * 9_000] * 9)], id="of many calls"),
        pytest.param([GOAL, *step(9, "", thought="t" * 40_000)], id="a long thought"),
    ],
)
async def test_a_long_unread_result_is_cut_with_a_note(transcript: list[Message]) -> None:
    model, events = spy(), list[ModelEvent]()

    await ask(with_compaction(model, window=WINDOW), transcript, events)

    (request,) = model.requests
    assert estimated_tokens(request) <= WINDOW * 4 // 5
    assert estimated_tokens(request) > WINDOW * 7 // 10
    assert any(LEFT_OUT in message.text for message in request.transcript)
    check_paired(request.transcript)
    (event,) = compactions(events)
    assert event.characters > 8_000


async def test_long_arguments_and_files_are_cut_too() -> None:
    model = spy()
    written = ToolCall("write", {"path": "a.txt", "text": "x" * 40_000}, id=CallId("w"))
    nested = ToolCall("plot", {"rows": [[1, 2, 3]] * 4_000}, id=CallId("p"))
    table = Part("text/csv", data=b"1,2" * 20_000, name="table.csv")
    transcript: list[Message] = [
        UserMessage("look", (table,)),
        AssistantMessage("", (written, nested)),
        ToolMessage(CallId("w"), "done"),
        ToolMessage(CallId("p"), "done"),
        UserMessage("and now?"),
    ]

    await ask(with_compaction(model, window=WINDOW), transcript)

    first, answer, *rest = model.requests[0].transcript
    assert "table.csv" in first.text
    assert isinstance(answer, AssistantMessage)
    assert answer.calls[0].arguments["path"] == "a.txt"
    assert LEFT_OUT in answer.calls[0].arguments["text"]
    assert "left out" in answer.calls[1].arguments["note"]
    assert rest == transcript[2:]


async def test_a_goal_stays_whole_where_a_summary_makes_room_for_it() -> None:
    model = spy()
    goal = UserMessage("g" * 15_000)

    await ask(
        with_compaction(model, window=WINDOW, summarizer=spy("it looked")),
        [goal, *steps(9, thought=3_000)[1:]],
    )

    (request,) = model.requests
    assert request.transcript[:2] == (goal, UserMessage(SUMMARY + "it looked"))


async def test_the_message_to_answer_is_cut_last() -> None:
    model = spy()
    own = UserMessage("q" * 9_000)
    aside = UserMessage("by the way", aside=True)
    transcript = [*steps(3, result=9_000), own, *step(7, "r" * 60_000), aside]

    await ask(with_compaction(model, window=WINDOW, summarizer=spy("short")), transcript)

    (request,) = model.requests
    assert own in request.transcript
    assert request.transcript[-1] == aside


async def test_a_conversation_without_any_message_of_a_user_is_cut_too() -> None:
    model = spy()

    await ask(with_compaction(model, window=3_000), step(0, *["found"] * 1_000))

    (request,) = model.requests
    (message,) = request.transcript
    assert LEFT_OUT in message.text


async def test_more_calls_than_there_is_room_for_become_a_record() -> None:
    """Each message alone takes some room, and a thousand of them take all of it."""
    model = spy()
    transcript = [UserMessage("look everywhere"), *step(0, *["found"] * 1_000)]

    await ask(with_compaction(model, window=3_000), transcript)

    (request,) = model.requests
    own, since = request.transcript
    assert own == transcript[0]
    assert since.text.startswith("What you have done since then")
    assert LEFT_OUT in since.text


async def test_a_transcript_without_a_goal_is_summarized_from_its_beginning() -> None:
    model = spy()
    transcript = steps(6, thought=6000)[1:]

    await ask(with_compaction(model, window=WINDOW, summarizer=spy("short")), transcript)

    summary = UserMessage(SUMMARY + "short")
    assert model.requests[0].transcript == (summary, *transcript[-4:])


async def test_a_provider_that_refuses_is_asked_once_more_with_less() -> None:
    model, events = spy(refuses_over=5_000), list[ModelEvent]()

    answer = await ask(with_compaction(model, window=WINDOW), steps(12, result=2000), events)

    assert answer.text == "42"
    assert len(model.requests) == 2
    assert estimated_tokens(model.requests[1]) <= WINDOW // 2
    assert [event.summarized for event in compactions(events)] == [False]


async def test_a_transcript_is_compacted_when_the_provider_finds_it_too_long() -> None:
    """Four characters a token is a guess, and far off for some scripts."""
    model = spy(refuses_over=3_000)

    answer = await ask(with_compaction(model, window=100_000), steps(5, result=2000))

    assert answer.text == "42"
    assert len(model.requests) == 2


async def test_a_provider_that_refuses_every_size_is_believed() -> None:
    model = spy(refuses_over=0)

    with pytest.raises(ModelError, match="8192 is the most"):
        await ask(
            with_compaction(model, window=WINDOW, summarizer=spy("short")), steps(12, result=2000)
        )

    sizes = [estimated_tokens(request) for request in model.requests]
    assert len(sizes) == 4
    assert sizes == sorted(sizes, reverse=True)


async def test_a_script_of_one_token_a_letter_bricks_no_conversation() -> None:
    """Our estimate is a quarter of the provider's count."""

    async def answer(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        if sum(len(message.text) for message in request.transcript) > WINDOW:
            raise ModelError("too long", kind=Failure.CONTEXT_TOO_LONG)
        return AssistantMessage("a" * 200)

    model = SpyModel(FunctionModel(answer))
    compact = with_compaction(model, window=WINDOW)
    transcript: list[Message] = []
    for _ in range(60):
        transcript.append(UserMessage("q" * 300))
        transcript.append(await ask(compact, transcript))


async def test_a_failed_compaction_keeps_the_error_of_the_provider_as_its_cause() -> None:
    model = spy(refuses_over=0)

    with pytest.raises(ModelError, match="listens has a window") as caught:
        await ask(with_compaction(model, window=WINDOW), [GOAL])

    assert str(caught.value.__cause__) == "8192 is the most"


async def test_other_failures_are_raised_as_they_are() -> None:
    error = ModelError("no", kind=Failure.AUTH)

    with pytest.raises(ModelError) as caught:
        await ask(with_compaction(ScriptedModel([error, "42"]), window=WINDOW), [GOAL])

    assert caught.value is error


async def test_a_transcript_may_grow_while_the_model_thinks() -> None:
    transcript = steps(6, thought=6000)
    count = len(transcript)

    def grow(_: Transcript) -> str:
        transcript.append(UserMessage("news"))
        return "it looked"

    model = spy()
    await ask(with_compaction(model, window=WINDOW, summarizer=ScriptedModel([grow])), transcript)

    assert model.requests[0].transcript[2:] == tuple(transcript[count - 4 : count])


async def test_a_shorter_request_allows_as_long_an_answer_and_a_summary_any() -> None:
    model, writer = spy(), spy("a summary")
    request = ModelRequest(
        instructions="", transcript=steps(40, thought=2_000), tools=(), max_output=7
    )

    await with_compaction(model, window=WINDOW, summarizer=writer).answer(request)

    assert [one.max_output for one in model.requests] == [7]
    assert {one.max_output for one in writer.requests} == {None}


async def test_answering_is_a_checkpoint() -> None:
    with trio.testing.assert_checkpoints():
        await ask(with_compaction(ScriptedModel(["42"]), window=WINDOW), [GOAL])


lengths = st.sampled_from([0, 5, 190, 210, 260, 900, 3_000, 9_000])
texts = st.builds(lambda length, letter: letter * length, lengths, st.sampled_from("ä\ud800x"))
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


@given(
    transcript=transcripts(),
    window=st.sampled_from([2_000, 3_000, 5_000, 10_000]),
    keep_last=st.integers(1, 6),
    summary=st.sampled_from(["", "short", "w" * 2_000, "w" * 9_000]),
    refuses_over=st.sampled_from([1_500, 3_000, 10**9]),
)
def test_every_compacted_request_is_well_formed_and_fits(
    transcript: list[Message], window: int, keep_last: int, summary: str, refuses_over: int
) -> None:
    """Only a newest message that does not fit by itself is too long."""
    model, writer = spy(refuses_over=refuses_over), spy(summary)
    compact = with_compaction(model, window=window, summarizer=writer, keep_last=keep_last)
    events: list[ModelEvent] = []
    before = [replace(message) for message in transcript]
    limit = min(window * 4 // 5, refuses_over)
    answer = None

    async def main() -> None:
        nonlocal answer
        try:
            answer = await ask(compact, transcript, events)
        except ModelError as exc:
            assert exc.kind is Failure.CONTEXT_TOO_LONG  # noqa: PT017

    trio.run(main)

    assert transcript == before
    own = transcript[-1] if isinstance(transcript[-1], UserMessage) else None
    alone = ModelRequest(instructions="be quick", transcript=[own] if own else [], tools=())
    # Where the provider counts otherwise, the last size that is tried may still be too long.
    if answer is None:
        assert estimated_tokens(alone) > limit * 5 // 8
    if refuses_over > window:
        assert (answer is not None) == (estimated_tokens(alone) <= limit)
    for request in model.requests:
        assert estimated_tokens(request) <= window * 4 // 5
        assert own is None or request.transcript[-1] == own
        check_paired(request.transcript)
    for request in writer.requests:
        assert estimated_tokens(request) <= window * 4 // 5
    if answer is not None:
        assert answer.usage.calls == len(model.requests) + len(writer.requests)
        is_whole = model.requests[-1].transcript == tuple(transcript)
        assert is_whole == (compactions(events) == [])


turns = st.lists(st.tuples(texts, st.lists(worked, max_size=3), texts), min_size=1, max_size=8)


@given(
    turns=turns,
    window=st.sampled_from([2_000, 3_000, 5_000]),
    summary=st.sampled_from(["", "short", "w" * 9_000]),
)
def test_every_turn_is_answered_if_its_own_message_fits(
    turns: list[tuple[str, list[tuple[str, list[str]]], str]], window: int, summary: str
) -> None:
    model = spy()
    compact = with_compaction(model, window=window, summarizer=spy(summary))
    limit = window * 4 // 5

    async def main() -> None:
        transcript: list[Message] = []
        for own, works, final in turns:
            transcript.append(UserMessage(own))
            alone = ModelRequest(instructions="be quick", transcript=transcript[-1:], tools=())
            if estimated_tokens(alone) > limit:
                with pytest.raises(ModelError):
                    await ask(compact, transcript)
                continue
            await ask(compact, transcript)
            for thought, results in works:
                transcript += step(len(transcript), *results, thought=thought)
                await ask(compact, transcript)
            transcript.append(AssistantMessage(final))

    trio.run(main)

    for request in model.requests:
        assert estimated_tokens(request) <= limit
        check_paired(request.transcript)
