"""A cassette plays back the recorded answers, and never contains a secret."""

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallId,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Price,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    tool,
)
from orchestrator.agents.models.wrappers.cassette import (
    MAX_DIFF_LINES,
    CassetteError,
    RecordingModel,
    ReplayModel,
)
from orchestrator.testing import StreamingModel
from tests.kit import FunctionModel

# The clock must not jump while a thread writes or reads.
pytestmark = pytest.mark.realtime

KEY = "sk-ant-api03-aB3_dE6-gH9"


@tool
def look(where: str) -> str:
    """Look around."""
    return where


REQUEST = ModelRequest(instructions="Be brief.", transcript=(UserMessage("go"),), tools=(look,))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "one.jsonl"


async def record(file: Path, *steps: Any, request: ModelRequest = REQUEST) -> list[Any]:
    model = RecordingModel(ScriptedModel(steps), file)
    return [await model.answer(request) for _ in steps]


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def text_of(file: Path) -> str:
    return file.read_text()


def add(file: Path, line: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as cassette:
        cassette.write(line)


def lines_of(file: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


async def test_a_recording_model_is_the_model_itself(file: Path) -> None:
    recording = RecordingModel(ScriptedModel(["42"], price=Price(input=1)), file)

    answer = await recording.answer(REQUEST)

    assert recording.name == "scripted"
    assert answer == await ScriptedModel(["42"], price=Price(input=1)).answer(REQUEST)


@pytest.mark.parametrize("step", ["42", ToolCall("look", {"where": "up", "n": 0})])
async def test_an_answer_is_played_back_as_it_was(file: Path, step: Any) -> None:
    (recorded,) = await record(file, step)

    replayed = await ReplayModel(file).answer(REQUEST)

    assert replayed == recorded
    assert replayed.model == "scripted"


async def test_a_cassette_keeps_the_whole_answer(file: Path) -> None:
    answer = AssistantMessage(
        "text",
        (ToolCall("look", {"a": [1, {"b": None}]}, id=CallId("c1")),),
        Usage(1, 2, 3, 4, 5, 6, 7),
        "openai:gpt-5",
    )

    await RecordingModel(StreamingModel.always(answer), file).answer(REQUEST)

    assert await ReplayModel(file).answer(REQUEST) == answer


async def test_a_replayed_text_is_streamed(file: Path) -> None:
    await record(file, "42", ToolCall("look"))
    events: list[ModelEvent] = []
    model = ReplayModel(file)

    await model.answer(replace(REQUEST, tell=events.append))
    await model.answer(replace(REQUEST, tell=events.append))

    assert events == [TextDelta("42")]


async def test_the_same_request_gets_one_answer_after_the_other(file: Path) -> None:
    await record(file, "one", "two")
    model = ReplayModel(file)

    texts = [(await model.answer(REQUEST)).text for _ in range(2)]

    assert texts == ["one", "two"]
    with pytest.raises(CassetteError, match="every answer to this request"):
        await model.answer(REQUEST)


async def test_a_second_recording_is_added_to_the_first(file: Path) -> None:
    await record(file, "one")
    await record(file, "two")

    assert [line["answer"]["text"] for line in lines_of(file)] == ["one", "two"]


async def test_requests_may_come_in_another_order(file: Path) -> None:
    other = replace(REQUEST, instructions="Be long.")
    await record(file, "short")
    await record(file, "long", request=other)
    model = ReplayModel(file)

    assert (await model.answer(other)).text == "long"
    assert (await model.answer(REQUEST)).text == "short"


async def test_two_may_begin_to_replay_at_once(file: Path) -> None:
    await record(file, "one", "two")
    model = ReplayModel(file)
    texts: list[str] = []

    async def asker() -> None:
        texts.append((await model.answer(REQUEST)).text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(asker)
        nursery.start_soon(asker)

    assert sorted(texts) == ["one", "two"]


async def test_many_may_record_at_once(file: Path) -> None:
    model = RecordingModel(ScriptedModel.always("x" * 10_000), file)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(model.answer, REQUEST)

    assert len(lines_of(file)) == 20


async def test_a_failure_is_played_back_too(file: Path) -> None:
    error = ModelError("busy", kind=Failure.RATE_LIMIT, retry_after=2.5, partial="half a")
    with pytest.raises(ModelError) as recorded:
        await record(file, error)
    events: list[ModelEvent] = []

    with pytest.raises(ModelError) as replayed:
        await ReplayModel(file).answer(replace(REQUEST, tell=events.append))

    assert recorded.value is error
    assert str(replayed.value) == "busy"
    assert replayed.value.kind is Failure.RATE_LIMIT
    assert replayed.value.retry_after == 2.5
    assert replayed.value.partial == "half a"
    assert events == [TextDelta("half a")]


async def test_an_error_of_ours_is_not_recorded(file: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        await record(file, ZeroDivisionError())

    assert not await trio.Path(file).exists()


async def test_a_cassette_can_be_read_by_people(file: Path) -> None:
    asked = AssistantMessage(calls=(ToolCall("look", {"where": "up"}, id=CallId("c")),))
    transcript = (UserMessage("go"), asked, ToolMessage(CallId("c"), "no", failed=True))
    await record(file, "42", request=replace(REQUEST, transcript=transcript))

    (line,) = text_of(file).splitlines()

    assert line.startswith('{"request": {"instructions": "Be brief.", "transcript": [')
    (exchange,) = lines_of(file)
    assert exchange["request"] == {
        "instructions": "Be brief.",
        "transcript": [
            {"from": "user", "text": "go"},
            {
                "from": "assistant",
                "calls": [{"name": "look", "arguments": {"where": "up"}, "id": "c"}],
            },
            {"from": "tool", "call": "c", "text": "no", "failed": True},
        ],
        "tools": {"look": look.parameters},
        "output": None,
    }
    assert exchange["answer"]["text"] == "42"


async def test_a_cassette_matches_requests_without_the_cost_of_their_messages(file: Path) -> None:
    """A new table of prices does not make old cassettes useless."""
    output = AssistantMessage("so", usage=Usage(calls=1, micro_usd=5), model="openai:a")
    await record(file, "42", request=replace(REQUEST, transcript=(output,)))
    cheaper = replace(output, usage=Usage(calls=1, micro_usd=4), model="openai:b")

    request = replace(REQUEST, transcript=(cheaper,))

    assert (await ReplayModel(file).answer(request)).text == "42"


async def test_a_transcript_that_grows_meanwhile_is_kept_as_it_was(file: Path) -> None:
    transcript: list[Any] = [UserMessage("go")]

    async def slow(_: ModelRequest) -> str:
        transcript.append(UserMessage("and on"))
        await trio.lowlevel.checkpoint()
        return "42"

    request = replace(REQUEST, transcript=transcript)
    await RecordingModel(FunctionModel(slow), file).answer(request)

    assert (await ReplayModel(file).answer(REQUEST)).text == "42"


async def test_only_its_owner_may_read_a_cassette(file: Path) -> None:
    await record(file, "42")
    assert mode_of(file) == 0o600

    await trio.Path(file).chmod(0o644)
    await record(file, "42")
    assert mode_of(file) == 0o600


CHANGES: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": "Be long."},
    "transcript": {"transcript": (UserMessage("stop"),)},
    "tools": {"tools": ()},
    "output": {"output": {"type": "integer"}},
}


@pytest.mark.parametrize("changed", CHANGES)
async def test_a_changed_request_is_not_answered(file: Path, changed: str) -> None:
    await record(file, "42")

    with pytest.raises(CassetteError) as caught:
        await ReplayModel(file).answer(replace(REQUEST, **CHANGES[changed]))

    assert caught.value.kind is Failure.BAD_REQUEST
    assert caught.value.file == file
    assert "--- recorded\n+++ asked\n" in str(caught.value)


async def test_a_changed_request_is_compared_with_the_nearest_one(file: Path) -> None:
    letter = "Dear reader,\nall is well.\nYours"
    await record(file, "a", request=replace(REQUEST, instructions="Be brief."))
    await record(file, "b", request=replace(REQUEST, instructions=letter))
    changed = letter.replace("well", "lost")

    with pytest.raises(CassetteError) as caught:
        await ReplayModel(file).answer(replace(REQUEST, instructions=changed))

    head, *difference = str(caught.value).splitlines()
    assert head == (f"cassette {file}: this request was not recorded; record it anew")
    assert difference == [
        "--- recorded",
        "+++ asked",
        "@@ -2,3 +2,3 @@",
        '   "instructions": "Dear reader,',
        "-all is well.",
        "+all is lost.",
        ' Yours",',
    ]


async def test_a_long_difference_is_cut(file: Path) -> None:
    await record(file, "42")
    long = replace(REQUEST, instructions="\n".join(map(str, range(1000))))

    with pytest.raises(CassetteError) as caught:
        await ReplayModel(file).answer(long)

    *lines, last = str(caught.value).splitlines()
    assert len(lines) == 1 + MAX_DIFF_LINES
    assert last.startswith("... and ")


@pytest.mark.parametrize("where", ["instructions", "transcript", "answer", "error"])
async def test_a_secret_never_reaches_the_file(file: Path, where: str) -> None:
    """Playback still matches: both sides are compared without the secret."""
    known = "swordfish"
    secret = f"the key is {KEY}, the word is {known}"
    request = {
        "instructions": replace(REQUEST, instructions=secret),
        "transcript": replace(
            REQUEST,
            transcript=(
                UserMessage(secret),
                AssistantMessage(calls=(ToolCall("look", {"password": "pike"}),)),
                ToolMessage(CallId("c"), '{"api_key": "pike"}'),
            ),
        ),
    }.get(where, REQUEST)
    steps: dict[str, Any] = {
        "answer": ToolCall("look", {"where": secret, "password": "pike"}),
        "error": ModelError(f"HTTP 401: {secret}", partial=secret),
    }
    script = ScriptedModel([steps.get(where, "42")])
    recording: Model = RecordingModel(script, file, known=[known])
    replay = ReplayModel(file, known=[known])

    if where == "error":
        for model in (recording, replay):
            with pytest.raises(ModelError, match="HTTP 401"):
                await model.answer(request)
    else:
        recorded = await recording.answer(request)
        replayed = await replay.answer(request)
        assert [call.name for call in replayed.calls] == [call.name for call in recorded.calls]

    written = text_of(file)
    assert "***" in written
    for word in (KEY, known, "pike"):
        assert word not in written


async def test_a_difference_shows_no_secret(file: Path) -> None:
    await record(file, "42")

    with pytest.raises(CassetteError) as caught:
        await ReplayModel(file).answer(replace(REQUEST, instructions=KEY))

    assert KEY not in str(caught.value)


async def test_a_turn_continues_with_the_redacted_answer_of_a_cassette(file: Path) -> None:
    """The second request holds the first answer, once with its secret and once without."""
    script = ScriptedModel([ToolCall("look", {"where": KEY}), "42"])
    texts: list[str] = []
    for model in (RecordingModel(script, file), ReplayModel(file)):
        asked = await model.answer(REQUEST)
        seen = ToolMessage(asked.calls[0].id, "seen")
        transcript = (*REQUEST.transcript, asked, seen)
        answer = await model.answer(replace(REQUEST, transcript=transcript))
        texts.append(answer.text)

    assert texts == ["42", "42"]


async def test_a_missing_cassette_is_an_error(file: Path) -> None:
    with pytest.raises(CassetteError, match=r"it cannot be read: .*No such file"):
        await ReplayModel(file).answer(REQUEST)


async def test_an_empty_cassette_is_an_error(file: Path) -> None:
    add(file, b"")

    with pytest.raises(CassetteError, match="it is empty"):
        await ReplayModel(file).answer(REQUEST)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"request"', "line 2 is not an exchange"),
        (b'{"request": {}, "answer": 1}', "line 2 is not an exchange"),
        (b'"\xff"', "line 2 is not an exchange"),
        (b'{"request": {}}', "line 2 has no answer and no error"),
    ],
)
async def test_a_broken_line_is_named(file: Path, line: bytes, problem: str) -> None:
    await record(file, "42")
    add(file, line)

    with pytest.raises(CassetteError, match=problem):
        await ReplayModel(file).answer(REQUEST)


async def test_an_unwritable_cassette_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="it cannot be written"):
        await record(tmp_path, "42")


def test_a_replay_is_called_by_its_file(file: Path) -> None:
    assert ReplayModel(file).name == "replay:one.jsonl"


async def test_every_replay_is_a_checkpoint(file: Path) -> None:
    await record(file, "one", "two")
    model = ReplayModel(file)

    for _ in range(2):
        with trio.testing.assert_checkpoints():
            await model.answer(REQUEST)


async def test_the_output_limit_is_part_of_the_request(file: Path) -> None:
    """An answer that was recorded without a limit may be longer than one allows."""
    capped = replace(REQUEST, max_output=100)
    await record(file, "42", request=capped)

    assert lines_of(file)[0]["request"]["max_output"] == 100
    with pytest.raises(CassetteError, match='"max_output": 100'):
        await ReplayModel(file).answer(REQUEST)
    assert (await ReplayModel(file).answer(capped)).text == "42"


async def test_a_replayed_failure_reports_the_recorded_usage(file: Path) -> None:
    capped = replace(REQUEST, max_output=1)
    with pytest.raises(ModelError) as recorded:
        await record(file, "a long answer", request=capped)

    with pytest.raises(ModelError) as replayed:
        await ReplayModel(file).answer(capped)

    assert recorded.value.usage is not None
    assert replayed.value.usage == recorded.value.usage


async def test_a_failure_that_was_recorded_without_a_count_is_still_read(file: Path) -> None:
    with pytest.raises(ModelError):
        await record(file, ModelError("busy"))

    assert "usage" not in lines_of(file)[0]["error"]
    with pytest.raises(ModelError) as replayed:
        await ReplayModel(file).answer(REQUEST)
    assert replayed.value.usage is None
