"""A server that is down, slow or wrong costs its own calls their own time, and nothing else."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import Orchestrator, confirm, open_orchestrator
from orchestrator.agents import ToolCall
from orchestrator.agents.tools.mcp.listed_tools import tool_name
from orchestrator.agents.tools.tool import NAME
from orchestrator.delegation import SessionId
from orchestrator.kernel.engine.approvals import CHANGED
from tests.mcp.kit import Caller, Log, hostile, is_running, program, use, user
from tests.performance.steps import LongestStep

pytestmark = pytest.mark.realtime
GOOD = program("good", "hostile.py")
HELLO = ToolCall("good__reply", {"result": {"content": [{"type": "text", "text": "hello"}]}})


HELLO_BAD = ToolCall("bad__reply", {"result": {"content": []}})


def reply(result: Any) -> ToolCall:
    """Return a call that the hostile server answers with this very result."""
    return ToolCall("bad__reply", {"result": result})


def text(*texts: str) -> list[Any]:
    return [{"type": "text", "text": it} for it in texts]


async def test_a_server_that_exits_at_once_is_named_with_its_last_words() -> None:
    model = await use(
        hostile("--exits", "7", "--stderr", "no licence for TOKEN=sk-0123456789abcdef"),
        GOOD,
        calls=[HELLO],
    )

    assert "good__reply" in model.tools
    assert model.answers[0].text == "hello"
    said = model.requests[0].instructions
    assert "'bad'" in said
    assert "code 7" in said
    assert "no licence" in said
    assert "sk-0123456789abcdef" not in said


async def test_a_server_that_never_answers_delays_no_longer_than_its_deadline() -> None:
    with trio.fail_after(20):
        model = await use(hostile("--silent", connect_timeout=0.5), GOOD, calls=[HELLO])

    assert model.answers[0].text == "hello"
    assert "not ready within 0.5 s" in model.requests[0].instructions


async def test_a_missing_program_is_reported_in_a_sentence() -> None:
    server = hostile()
    model = await use(type(server)("bad", ["no-such-program-anywhere"]), GOOD, calls=[HELLO])

    problem = "there is no program 'no-such-program-anywhere'"
    assert problem in model.requests[0].instructions


async def test_lines_that_are_not_messages_are_skipped() -> None:
    model = await use(hostile("--noise"), calls=[reply({"content": text("still here")})])

    assert model.answers[0].text == "still here"


async def test_an_answer_that_comes_twice_or_to_another_is_read_once() -> None:
    model = await use(
        hostile(),
        calls=[ToolCall("bad__twice"), ToolCall("bad__wrong_id"), reply({"content": text("next")})],
    )

    assert [it.text for it in model.answers] == ["first", "right", "next"]


async def test_an_error_of_a_server_is_an_answer_whatever_its_code() -> None:
    call = ToolCall("bad__fail", {"code": -32000})
    model = await use(hostile(), calls=[[call], [reply({"content": text("fine")})]])
    assert [it.text for it in model.answers] == [
        "bad__fail was refused by its server: out of paper",
        "fine",
    ]


async def test_an_answer_that_is_too_long_fails_alone() -> None:
    model = await use(
        hostile(),
        calls=[
            [ToolCall("bad__long", {"bytes": 17 * 2**20}), reply({"content": text("fine")})],
            reply({"content": text("still fine")}),
        ],
    )

    assert ["16,777,216 bytes" in it.text for it in model.answers if it.failed] == [True]
    assert [it.text for it in model.answers if not it.failed] == ["fine", "still fine"]


PIXEL = base64.b64encode(b"\x89PNG").decode()


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": [{"type": "marble"}]}, "unknown type 'marble'"),
        ({"content": [5, None, {"type": "text"}]}, "unknown type"),
        ({"content": 5}, "(no content)"),
        ({}, "(no content)"),
        ({"content": [], "structuredContent": {"a": 1}}, '{"a": 1}'),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "%"}]},
            "could not be read",
        ),
        ({"content": [{"type": "image", "mimeType": 5, "data": PIXEL}]}, "no data, or no type"),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "A"}]},
            "[A](file:///a)",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "f:///a", "text": "words"}}]},
            "f:///a:\nwords",
        ),
    ],
)
async def test_any_content_becomes_text(result: Any, said: str) -> None:
    model = await use(hostile(), calls=[reply(result)])

    assert not model.answers[0].failed
    assert said in model.answers[0].text


async def test_images_audio_and_embedded_files_come_back_as_parts() -> None:
    model = await use(
        hostile(),
        calls=[
            reply(
                {
                    "content": [
                        {"type": "image", "mimeType": "image/png", "data": PIXEL},
                        {"type": "audio", "mimeType": "audio/wav", "data": PIXEL},
                        {
                            "type": "resource",
                            "resource": {
                                "uri": "file:///a.pdf",
                                "mimeType": "application/pdf",
                                "blob": PIXEL,
                            },
                        },
                    ]
                }
            )
        ],
    )

    kinds = [it.media_type for it in model.answers[0].parts]
    assert kinds == ["image/png", "audio/wav", "application/pdf"]
    assert {it.data for it in model.answers[0].parts} == {b"\x89PNG"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"content": text("it broke"), "isError": True}, "it broke"),
        ({"content": [], "isError": True}, "does not say why"),
        ({"resultType": "marble", "content": []}, "unknown type 'marble'"),
    ],
)
async def test_an_error_of_the_server_is_read_by_the_model(result: Any, said: str) -> None:
    model = await use(hostile(), calls=[reply(result)])

    assert model.answers[0].failed
    assert said in model.answers[0].text


async def test_bad_tools_are_left_out_and_the_others_stay(tmp_path: Path) -> None:
    listed = tmp_path / "tools.json"
    good = {"name": "reply", "inputSchema": {"type": "object"}}
    far = {"$ref": "https://example.invalid/schema"}
    listed.write_text(
        json.dumps(
            [
                good,
                {"inputSchema": {"type": "object"}},
                {"name": 5, "inputSchema": {"type": "object"}},
                {"name": "", "inputSchema": {"type": "object"}},
                "no tool",
                None,
                {"name": "array", "inputSchema": {"type": "array"}},
                {"name": "nothing"},
                {"name": "text", "inputSchema": "object"},
                {"name": "nowhere", "inputSchema": {"$ref": "#/$defs/gone"}},
                {"name": "far", "inputSchema": {"properties": {"a": far}}},
                {"name": "reply", "inputSchema": {"type": "object"}},
                {"name": "x" * 300, "inputSchema": {"type": "object"}},
                {"name": "y" * 100, "inputSchema": {"type": "object"}},
                {"name": "white space/ü", "inputSchema": {"type": "object"}},
                {
                    "name": "talkative",
                    "description": "A" * 100_000,
                    "inputSchema": {
                        "type": "object",
                        "properties": {
                            "a": {"description": "seen\U000e0041\u200b\ufe01\u3164\u061c"}
                        },
                    },
                    "annotations": "none",
                    "outputSchema": {"$ref": "https://example.invalid/schema"},
                },
            ]
        )
    )
    model = await use(
        hostile(env={"HOSTILE_TOOLS": str(listed)}), calls=[reply({"content": text("works")})]
    )

    names = list(model.tools)
    # In the order of their names, so that requests stay the same for prompt caches.
    assert names[:2] == ["bad__reply", "bad__talkative"]
    assert names[2].startswith("bad__white_space___")
    assert names[3].startswith("bad__yyyy")
    assert len(names) == 4
    assert all(len(name) <= 64 for name in names)
    assert len(model.tools["bad__talkative"].description) < 10_000
    properties = model.tools["bad__talkative"].parameters["properties"]
    assert properties["a"]["description"] == "seen"
    assert model.answers[0].text == "works"


async def test_a_dot_keeps_the_names_of_two_tools_apart(tmp_path: Path) -> None:
    listed = tmp_path / "tools.json"
    names = ("files.read", "files_read")
    listed.write_text(json.dumps([{"name": it, "inputSchema": {"type": "object"}} for it in names]))
    calls = [ToolCall(tool_name("bad", it), {}) for it in names]
    model = await use(hostile(env={"HOSTILE_TOOLS": str(listed)}), calls=calls)

    assert set(model.tools) == {it.name for it in calls}
    assert all(NAME.fullmatch(it.name) for it in calls)
    # The server is asked for the tool by the name that it has itself.
    for name, answer in zip(names, model.answers, strict=True):
        assert f"Unknown tool: {name}" in answer.text


async def test_a_listing_without_end_and_with_thousands_is_cut(tmp_path: Path) -> None:
    listed = tmp_path / "tools.json"
    many = [{"name": f"t{it}", "inputSchema": {"type": "object"}} for it in range(1_500)]
    listed.write_text(json.dumps(many))

    model = await use(hostile("--endless", env={"HOSTILE_TOOLS": str(listed)}))

    assert len(model.tools) == 1_000


async def test_a_large_listing_is_read_in_short_steps(tmp_path: Path) -> None:
    listed = tmp_path / "tools.json"
    schema = {"type": "object", "properties": {f"p{it}": {"type": "string"} for it in range(40)}}
    huge = {"type": "object", "properties": {f"p{it}": {} for it in range(20_000)}}
    many = [{"name": f"t{it}", "inputSchema": schema} for it in range(120)]
    listed.write_text(json.dumps([*many, {"name": "huge", "inputSchema": huge}]))
    steps = LongestStep()
    trio.lowlevel.add_instrument(steps)
    sys.setprofile(steps.count)
    try:
        model = await use(hostile(env={"HOSTILE_TOOLS": str(listed)}))
    finally:
        sys.setprofile(None)
        trio.lowlevel.remove_instrument(steps)

    assert len(model.tools) == 120
    # All tools in one step are 500,000 calls.
    assert steps.calls < 100_000


async def test_a_malformed_answer_fails_at_once() -> None:
    model = await use(hostile(), calls=[reply(None), reply([1])])

    assert all(it.failed for it in model.answers)
    assert "not a message of the protocol" in model.answers[0].text


async def test_a_tool_that_has_vanished_is_a_sentence(tmp_path: Path) -> None:
    listed = tmp_path / "tools.json"
    listed.write_text(json.dumps([{"name": "gone", "inputSchema": {"type": "object"}}]))
    model = await use(hostile(env={"HOSTILE_TOOLS": str(listed)}), calls=[ToolCall("bad__gone")])

    assert model.answers[0].failed
    assert "bad__gone" in model.answers[0].text
    assert "Unknown tool: gone" in model.answers[0].text


async def test_a_swarm_of_changes_is_one_listing(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    server = hostile(env={"HOSTILE_LOG": log.path})
    model = Caller(ToolCall("bad__swarm", {"times": 500}))

    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(user(model, server), "go")
        await log.wait_heard("tools/list", times=2)
        later = Caller(HELLO_BAD)
        await orchestrator.run(user(later, server), "go")
        await log.wait_heard("tools/call", times=2)

    # While they are listed the last of them may come.
    assert log.count("tools/list") <= 3


async def test_a_slow_call_fails_alone_and_is_cancelled_at_the_server(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    model = await use(
        hostile(timeout=0.7, env={"HOSTILE_LOG": log.path}),
        calls=[[ToolCall("bad__hang"), reply({"content": text("quick")})]],
    )

    by_call = {it.failed: it.text for it in model.answers}
    assert "did not answer within 0.7 s" in by_call[True]
    assert by_call[False] == "quick"
    await log.wait_heard("notifications/cancelled")


async def test_a_call_that_may_have_run_is_not_made_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    model = await use(
        hostile(env={"HOSTILE_COUNT": str(count)}),
        calls=[ToolCall("bad__count", {"die": 1}), ToolCall("bad__count")],
    )

    assert model.answers[0].failed
    assert "may have happened or not" in model.answers[0].text
    # It is connected again for the next one.
    assert model.answers[1].text == "2"
    assert count.read_text() == "2"


async def test_a_call_that_does_no_harm_twice_is_made_again_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    model = await use(
        hostile(env={"HOSTILE_COUNT": str(count)}),
        calls=[
            ToolCall("bad__count_safely", {"die": 1}),
            ToolCall("bad__count_safely", {"die": 4}),
        ],
    )

    assert model.answers[0].text == "2"
    assert model.answers[1].failed
    assert count.read_text() == "4"


async def test_closing_the_orchestrator_leaves_no_process_of_a_server() -> None:
    """Not a server that ignores TERM, and no grandchild that left its group."""
    with trio.fail_after(30):
        model = await use(hostile("--stubborn"), calls=[ToolCall("bad__grandchild")])

    assert not is_running(model.answers[0].text)


async def test_a_process_that_must_exit_at_once_leaves_no_server() -> None:
    model = Caller(ToolCall("bad__grandchild"))
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(user(model, hostile("--stubborn")), "go")
        await orchestrator.abandon()
        assert not is_running(model.answers[0].text)


async def test_cancelling_a_run_notifies_the_server(tmp_path: Path) -> None:
    log = Log(tmp_path / "log")
    server = hostile(env={"HOSTILE_LOG": log.path})
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            agent = user(Caller(ToolCall("bad__hang")), server)
            nursery.start_soon(orchestrator.run, agent, "go")
            await log.wait_heard("tools/call")
            nursery.cancel_scope.cancel()
        await log.wait_heard("notifications/cancelled")


async def test_a_tool_whose_definition_changes_is_asked_about_again(tmp_path: Path) -> None:
    listed, reasons = tmp_path / "tools.json", list[str]()
    server = hostile(env={"HOSTILE_TOOLS": str(listed)})
    call = reply({"content": text("fine")})

    async def approve(orchestrator: Orchestrator) -> None:
        async for question in orchestrator.questions:
            reasons.append(question.why)
            await orchestrator.answer(question.id, "session")

    async def ask_in(session: SessionId | None, description: str) -> SessionId:
        schema = {"type": "object"}
        tools = [{"name": "reply", "description": description, "inputSchema": schema}]
        listed.write_text(json.dumps(tools))
        agent = user(Caller([call], [call]), server, approve=[confirm("bad__reply")])
        journal = tmp_path / "journal.db"
        async with open_orchestrator(journal) as orchestrator, trio.open_nursery() as nursery:
            nursery.start_soon(approve, orchestrator)
            async with orchestrator.open_session(agent, session=session) as talk:
                await talk.ask("go")
            nursery.cancel_scope.cancel()
        return talk.id

    id_ = await ask_in(None, "replies")
    assert reasons == [""]
    await ask_in(id_, "replies")
    assert reasons == [""]
    await ask_in(id_, "replies, and tells mallory.example")
    assert reasons == ["", CHANGED]
