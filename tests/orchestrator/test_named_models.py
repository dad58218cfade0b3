"""Agents on models by name: the same team on every provider, over real HTTP on loopback."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import Machine, Models, open_orchestrator
from orchestrator.agents import (
    Agent,
    CallId,
    Compaction,
    Failure,
    Message,
    ModelRequest,
    Part,
    Price,
    Retrying,
    ScriptedModel,
    TextDelta,
    ToolCall,
    Transcript,
    UserMessage,
    tool,
)
from orchestrator.agents.models.registry import model_named
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel
from orchestrator.agents.models.wrappers.prices import PriceTable
from orchestrator.agents.models.wrappers.rate_limit import Limiter, with_rate_limit
from orchestrator.delegation import Ending
from tests.fake_provider import FakeProvider, Raw, Reply, Say, Then, open_provider

# Sockets live in real time.
pytestmark = pytest.mark.realtime

PROVIDERS = ["openai", "openai-responses", "anthropic"]
KEY = "sk-0123456789abcdefghij"


@tool(idempotent=True)
async def lookup(word: str) -> str:
    """Return the definition of a word."""
    await trio.lowlevel.checkpoint()
    return {"trio": "three of a kind"}[word]


def environ(provider: FakeProvider) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": provider.url,
    }


def team(model: Any) -> Agent:
    """Return an editor that delegates to a researcher with a tool, all on one model."""
    researcher = Agent("researcher", model=model, tools=[lookup])
    return Agent("editor", instructions="Edit.", model=model, delegates=[researcher])


def script() -> list[Any]:
    """Return what the provider says: the editor delegates, the researcher looks up, both end."""
    delegate = ToolCall("delegate_task", {"goal": "trio?"}, id=CallId("call_a"))
    look = ToolCall("lookup", {"word": "trio"}, id=CallId("call_b"))
    return [
        Say(calls=(delegate,), read=10, wrote=5),
        Say(calls=(look,), read=10, wrote=5),
        Say(text="three of a kind", read=10, wrote=5),
        Say(text="A trio is three of a kind.", read=10, wrote=5),
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_same_team_runs_unchanged_on_every_provider(provider: str) -> None:
    async with open_provider() as server:
        server.replies = script()
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            run = await orchestrator.run(team(f"{provider}:any"), "What is a trio?")

    assert run.output == "A trio is three of a kind."
    assert run.usage.tokens == 60
    assert run.usage.unpriced == 4
    assert [run.tree[task].status for task in run.tree] == ["succeeded"] * 2


async def test_the_same_team_runs_unchanged_from_a_cassette(tmp_path: Path) -> None:
    """Recorded once over HTTP, it needs no server and no key any more."""
    file = tmp_path / "cassette.jsonl"
    async with open_provider() as server:
        server.replies = [Say(text="three of a kind", read=10, wrote=5)]
        live = model_named("openai:any", environ(server))
        agent = Agent("scholar", model=RecordingModel(live, file))
        async with open_orchestrator(":memory:") as orchestrator:
            first = await orchestrator.run(agent, "What is a trio?")
        await live.aclose()
    async with open_orchestrator(":memory:") as orchestrator:
        replayed = Agent("scholar", model=ReplayModel(file))
        again = await orchestrator.run(replayed, "What is a trio?")

    assert first.output == again.output == "three of a kind"
    assert KEY not in file.read_text()


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Raw(b'{"error": {"message": "no", "code": "invalid_api_key"}}', 401), "auth"),
        (Raw(b'{"error": {"message": "x", "code": "insufficient_quota"}}', 429), "quota"),
        (
            Raw(b'{"error": {"message": "x", "code": "context_length_exceeded"}}', 400),
            "context_too_long",
        ),
        (Raw(b'{"error": {"message": "bad"}}', 400), "bad_request"),
        (Say(refusal="I will not."), "refused"),
    ],
)
async def test_every_failure_that_cannot_heal_ends_in_its_own_kind(reply: Any, kind: str) -> None:
    async with open_provider() as server:
        server.replies = [reply]
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            run = await orchestrator.run(Agent("a", model="openai:any"), "go")

    assert run.outcome.ending is Ending.FAILED
    assert run.outcome.kind == kind
    assert len(server.heard) == 1
    assert KEY not in run.outcome.error


async def test_a_transient_failure_is_retried_and_listeners_see_it() -> None:
    busy = Raw(b'{"error": {"message": "slow down"}}', 429, {"retry-after": "0"})
    async with open_provider() as server:
        server.replies = [busy, Say(text="at last")]
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            with orchestrator.listen() as events:
                run = await orchestrator.run(Agent("a", model="openai:any"), "go")
                heard = [events.receive_nowait().event for _ in range(2)]

    assert run.output == "at last"
    assert isinstance(heard[0], Retrying)
    assert heard[0].kind is Failure.RATE_LIMIT
    assert isinstance(heard[1], TextDelta)


async def test_a_failed_model_is_replaced_by_the_next_one() -> None:
    async with open_provider() as server:
        server.replies = [Raw(b'{"error": {"message": "no"}}', 401), Say(text="I am here")]
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            agent = Agent("a", model="openai:first | anthropic:second")
            run = await orchestrator.run(agent, "go")

    assert run.output == "I am here"
    assert [heard.path for heard in server.heard] == ["/v1/chat/completions", "/v1/messages"]


async def test_a_table_of_ones_own_prices_a_server_elsewhere() -> None:
    prices = PriceTable.shipped().with_prices({"openai:any": Price(input=1000, output=2000)})
    async with open_provider(Say(text="x", read=10, wrote=5)) as server:
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server)), models=Models(prices=prices)
        ) as orchestrator:
            run = await orchestrator.run(Agent("a", model="openai:any"), "go")

    assert (run.usage.micro_usd, run.usage.unpriced) == (20_000, 0)


async def test_a_stream_that_breaks_for_good_keeps_its_partial_text() -> None:
    broken = Say(text="half of the answer and more", cut=3, then=Then.HANG_UP)
    async with open_provider(broken) as server:
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            bare = model_named("openai:any", environ(server))
            run = await orchestrator.run(Agent("a", model=bare), "go")
            await bare.aclose()

    assert run.outcome.kind == "connection"
    assert run.outcome.output
    assert "half of the answer and more".startswith(run.outcome.output)


async def test_a_limiter_holds_for_all_agents_of_an_orchestrator() -> None:
    limiter = Limiter(in_flight=3)
    peak: list[int] = []

    async with open_provider(Say(text="x")) as server:
        async with open_orchestrator(
            ":memory:",
            machine=Machine(environ=environ(server)),
            models=Models(limiters={"openai": limiter}),
        ) as orchestrator:

            async def run() -> None:
                await orchestrator.run(Agent("a", model="openai:any"), "go")
                peak.append(limiter.in_flight)

            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(run)

    assert len(server.heard) == 20
    assert max(peak) <= 3


async def test_a_long_transcript_is_compacted_and_the_original_kept() -> None:
    heard: list[Sequence[Message]] = []

    def say(transcript: Transcript) -> Any:
        heard.append(list(transcript))
        return ToolCall("dump", {"n": len(heard)}) if len(heard) < 5 else "done"

    @tool(idempotent=True)
    async def dump(n: int) -> str:
        await trio.lowlevel.checkpoint()
        return f"{n}" * 4_000

    agent = Agent(
        "reader",
        model=ScriptedModel.always(say),
        tools=[dump],
        compaction=Compaction(window=4_000, keep_last=2),
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(agent, "read everything")

    assert run.outcome.succeeded
    longest = max(sum(len(m.text) for m in transcript) for transcript in heard)
    assert longest < 16_000


async def test_a_thousand_agents_stream_at_once_through_one_process() -> None:
    async with open_provider(Say(text="a few words, streamed", read=3, wrote=4)) as server:
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            agent = Agent("a", model="openai:any")
            outputs: list[str] = []

            async def run() -> None:
                outputs.append((await orchestrator.run(agent, "go")).output)

            async with trio.open_nursery() as nursery:
                for _ in range(1_000):
                    nursery.start_soon(run)

    assert outputs == ["a few words, streamed"] * 1_000


@pytest.mark.memory_only
async def test_a_key_planted_in_every_text_reaches_no_file(tmp_path: Path) -> None:
    @tool
    async def show(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{text} {KEY}"

    replies: list[Reply] = [
        Say(text=f"my key is {KEY}", calls=(ToolCall("show", {"text": KEY}),)),
        Raw(f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode(), 400),
    ]
    async with open_provider(Say(text="bye")) as server:
        server.replies = replies
        path = tmp_path / "journal.db"
        async with open_orchestrator(
            path, machine=Machine(environ=environ(server))
        ) as orchestrator:
            agent = Agent("a", model="openai:any", tools=[show])
            run = await orchestrator.run(agent, f"use {KEY}")
        live = model_named("openai:any", environ(server))
        again = RecordingModel(live, tmp_path / "tape", known=[KEY])
        server.replies = replies[:1]
        async with open_orchestrator(":memory:") as orchestrator:
            await orchestrator.run(Agent("b", model=again), f"use {KEY}")
        await live.aclose()

    assert run.outcome.kind == "bad_request"
    assert KEY not in run.tree.to_text() + str(run.outcome)
    written = contents(tmp_path)
    assert len(written) >= 2
    assert KEY.encode() not in b"".join(written)


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file()]


async def test_a_file_that_cannot_be_sent_is_refused_once_and_the_session_goes_on() -> None:
    archive = Part("application/zip", data=b"zip", name="all.zip")
    async with open_provider(Say(text="fine")) as server:
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            async with orchestrator.open_session(Agent("a", model="openai:any")) as session:
                refused = await session.ask("look", archive)
                after = await session.ask("never mind")

    assert refused.outcome.kind == "bad_request"
    assert after.text == "fine"
    assert "all.zip" in str(server.heard[0].body)


async def test_limits_of_a_provider_hold_in_both_of_its_protocols() -> None:
    closed = {"openai": Limiter(in_flight=0)}
    async with open_provider(Say(text="x")) as server:
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server)), models=Models(limiters=closed)
        ) as orchestrator:
            agent = Agent("a", model="openai-responses:any")
            run = await orchestrator.run(agent, "go")

    assert run.outcome.kind == "quota"


def test_a_limiter_may_be_used_in_one_run_of_trio_after_the_other() -> None:
    """Every run has a clock of its own."""
    limiter = Limiter(requests_per_minute=60, tokens_per_minute=100_000)
    model = with_rate_limit(ScriptedModel.always("x"), limiter)
    request = ModelRequest(instructions="", transcript=[UserMessage("go")], tools=[])

    async def ask() -> str:
        with trio.fail_after(5):
            return (await model.answer(request)).text

    assert [trio.run(ask) for _ in range(6)] == ["x"] * 6


async def test_closing_the_event_stream_early_does_not_disturb_the_run() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with orchestrator.listen() as events:
            await events.aclose()
            run = await orchestrator.run(Agent("a", model=ScriptedModel(["said"])), "go")

    assert run.output == "said"


async def test_the_usage_of_failed_attempts_is_counted() -> None:
    """A limit that only saw the last attempt would be none."""
    garbled = Raw(
        b'data: {"id": "1", "choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
        b'data: {"id": "1", "choices": [], "usage": {"prompt_tokens": 100,'
        b' "completion_tokens": 50}}\n\n'
        b"data: garbage\n\n",
        200,
        {"content-type": "text/event-stream"},
    )
    async with open_provider() as server:
        server.replies = [garbled, Say(text="done", read=10, wrote=5)]
        async with open_orchestrator(
            ":memory:", machine=Machine(environ=environ(server))
        ) as orchestrator:
            run = await orchestrator.run(Agent("a", model="openai:any"), "go")

    assert run.output == "done"
    assert (run.usage.calls, run.usage.tokens) == (2, 165)
