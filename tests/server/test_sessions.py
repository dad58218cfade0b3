"""Conversations over HTTP: said, read, taken, closed, and gone on with after a restart."""

import base64
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel, ToolCall, Transcript, UserMessage
from orchestrator.delegation import DeliveryCapability
from orchestrator.delegation.events import DoorOpened, ReplyDelivered
from orchestrator.testing import SpyModel
from tests.kit import worker
from tests.server.kit import Served, serving
from tests.server.runs_kit import boss, events_in, problem, started

pytestmark = pytest.mark.realtime


def echo() -> Agent:
    """Return an agent that repeats the last message, and counts them."""

    def say(transcript: Transcript) -> str:
        said = [it.text for it in transcript if isinstance(it, UserMessage)]
        return f"{len(said)}: {said[-1]}"

    return Agent("echo", model=ScriptedModel.always(say))


async def opened(served: Served, agent: str = "echo", **more: Any) -> str:
    answer = await served.http.post("/v1/sessions", json={"model": agent, **more})
    assert answer.status_code == 201, answer.text
    id_: str = answer.json()["id"]
    return id_


async def say(served: Served, session: str, text: str, **headers: str) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await served.http.post(
        f"/v1/sessions/{session}/messages", json={"text": text}, headers=names
    )
    assert answer.status_code == 202, answer.text
    return answer.json()


async def inbox(served: Served, session: str, wait: float = 20) -> list[Any]:
    answer = await served.http.get(f"/v1/sessions/{session}/inbox?wait={wait}")
    assert answer.status_code == 200, answer.text
    replies: list[Any] = answer.json()["data"]
    return replies


async def take(served: Served, session: str, turn: int) -> int:
    answer = await served.http.delete(f"/v1/sessions/{session}/inbox/{turn}")
    return answer.status_code


async def test_a_reply_waits_in_the_inbox_until_the_client_takes_it() -> None:
    async with serving(echo()) as served:
        session = await opened(served, metadata={"for": "Ann"})
        before = await inbox(served, session, wait=0)
        said = await say(served, session, "hello")
        first = await inbox(served, session)
        again = await inbox(served, session)
        shown = (await served.http.get(f"/v1/sessions/{session}")).json()
        taken = [await take(served, session, 1), await take(served, session, 1)]
        after = await inbox(served, session, wait=0)
        kept = await served.orchestrator.read.entries(shown["id"])

    assert before == after == []
    assert first == again
    assert first[0]["text"] == "1: hello"
    assert first[0]["status"] == "succeeded"
    assert first[0]["read"] == [said["seq"]]
    assert (shown["status"], shown["inbox"], shown["turns"]) == ("idle", 1, 1)
    assert shown["metadata"] == {"for": "Ann"}
    assert taken == [200, 404]
    opened_ = [it.event for it in kept if isinstance(it.event, DoorOpened)]
    delivered = [it for it in kept if isinstance(it.event, ReplyDelivered)]
    assert [it.capability for it in opened_] == [DeliveryCapability.POLL]
    assert len(delivered) == 1


async def test_a_conversation_goes_on_and_remembers() -> None:
    async with serving(echo()) as served:
        session = await opened(served)
        for number, text in enumerate(("one", "two"), 1):
            await say(served, session, text)
            assert (await inbox(served, session))[-1]["text"] == f"{number}: {text}"
            await take(served, session, number)
        path = f"/v1/sessions/{session}/messages"
        whole = (await served.http.get(path)).json()
        rest = (await served.http.get(f"{path}?after=2&limit=1")).json()

    assert [it["text"] for it in whole["data"]] == ["one", "1: one", "two", "2: two"]
    assert [it["text"] for it in rest["data"]] == ["two"]
    assert rest["has_more"] is True


async def test_a_client_that_waits_for_a_reply_gets_it_when_it_comes() -> None:
    async with serving(echo()) as served:
        session = await opened(served)
        got: list[Any] = []

        async def wait() -> None:
            got.append(await inbox(served, session))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(wait)
                await say(served, session, "hello")

    assert [it[0]["text"] for it in got] == ["1: hello"] * 3


async def test_a_message_with_the_same_idempotency_key_is_sent_once(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(echo(), journal=journal) as served:
        session = await opened(served)
        first = await say(served, session, "hello", idempotency_key="k")
        second = await say(served, session, "hello", idempotency_key="k")
        await inbox(served, session)
        third = await say(served, session, "hello", idempotency_key="k")
    async with serving(echo(), journal=journal) as served:
        fourth = await say(served, session, "hello", idempotency_key="k")
        other = await served.http.post(
            f"/v1/sessions/{session}/messages",
            json={"text": "bye"},
            headers={"idempotency-key": "k"},
        )
        said = (await served.http.get(f"/v1/sessions/{session}/messages")).json()

    answers = [first, second, third, fourth]
    assert {it["message"] for it in answers} == {first["message"]}
    assert {it["seq"] for it in answers} == {first["seq"]}
    assert [it["text"] for it in said["data"]] == ["hello", "1: hello"]
    assert other.status_code == 422
    assert problem(other)["code"] == "idempotency_key_reused"


async def test_the_same_key_opens_one_session() -> None:
    body = {"model": "echo"}
    key = {"idempotency-key": "k"}
    async with serving(echo()) as served:
        first = await served.http.post("/v1/sessions", json=body, headers=key)
        again = await served.http.post("/v1/sessions", json=body, headers=key)
        other = await served.http.post(
            "/v1/sessions", json={**body, "metadata": {"a": "b"}}, headers=key
        )

    assert first.json()["id"] == again.json()["id"]
    assert other.status_code == 422


async def test_an_untaken_reply_is_there_after_a_restart(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(echo(), journal=journal) as served:
        session = await opened(served)
        await say(served, session, "hello")
        await inbox(served, session)
    async with serving(echo(), journal=journal) as served:
        left = await inbox(served, session, wait=0)
        await say(served, session, "again")
        await take(served, session, 1)
        more = await inbox(served, session)

    assert [it["text"] for it in left] == ["1: hello"]
    assert [it["text"] for it in more] == ["2: again"]


async def test_children_of_a_conversation_detach_and_wake_it() -> None:
    async with serving(boss()) as served:
        session = await opened(served, "boss")
        await say(served, session, "go")
        texts: list[str] = []
        with trio.fail_after(20):
            while "heard: 2" not in texts:
                (reply, *_) = await inbox(served, session)
                texts.append(reply["text"])
                await take(served, session, reply["turn"])

    assert texts[0] == "they are at it"


async def test_cancelling_a_turn_leaves_its_tasks_in_the_background_at_work() -> None:
    calls = [
        ToolCall("delegate_task", {"goal": goal, "background": goal == "detached"})
        for goal in ("detached", "joined")
    ]
    agent = Agent("boss", model=ScriptedModel([calls]), delegates=[worker(seconds=3600)])
    async with serving(agent) as served:
        session = await opened(served, "boss")
        await say(served, session, "go")

        async def statuses() -> dict[str, str]:
            tree = (await served.http.get(f"/v1/runs/{session}/tree")).json()
            return {it["goal"]: it["status"] for it in tree["nodes"]}

        while list((await statuses()).values()).count("running") < 3:
            await trio.lowlevel.checkpoint()
        cancelled = await served.http.post(f"/v1/sessions/{session}/cancel")
        after = await statuses()
        (reply,) = await inbox(served, session)
        await served.http.post(f"/v1/sessions/{session}/close")

    assert cancelled.status_code == 200, cancelled.text
    assert (after["detached"], after["joined"]) == ("running", "cancelled")
    assert reply["status"] == "cancelled"


async def test_closing_ends_all_that_a_conversation_does() -> None:
    async with serving(boss(helper=worker("helper", seconds=1_000))) as served:
        session = await opened(served, "boss")
        await say(served, session, "go")
        await inbox(served, session)
        closed = await served.http.post(f"/v1/sessions/{session}/close")
        again = await served.http.post(f"/v1/sessions/{session}/close")
        more = await served.http.post(
            f"/v1/sessions/{session}/messages", json={"text": "still there?"}
        )
        left = await inbox(served, session)
        stream = await served.http.get(f"/v1/sessions/{session}/events")
        tree = served.orchestrator.tree(session)

    assert (closed.status_code, closed.json()["status"]) == (200, "closed")
    assert again.json()["status"] == "closed"
    assert more.status_code == 409
    assert problem(more)["code"] == "conflict"
    assert left == []
    assert events_in(stream.text)[-1].data == {"status": "closed"}
    assert len(tree.find(status="cancelled")) == 2


async def test_the_events_of_a_conversation_end_when_it_is_closed() -> None:
    async with serving(echo()) as served:
        session = await opened(served)
        got: list[Any] = []

        async def read() -> None:
            answer = await served.http.get(f"/v1/sessions/{session}/events")
            got.extend(events_in(answer.text))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                for number in (1, 2):
                    await say(served, session, "hello")
                    await inbox(served, session)
                    await take(served, session, number)
                assert not got
                await served.http.post(f"/v1/sessions/{session}/close")

    kinds = [it.data["kind"] for it in got[:-1]]
    assert kinds.count("TurnEnded") == 2
    assert kinds.count("ReplyDelivered") == 2
    assert [it.name for it in got].count("end") == 1


async def test_instructions_hold_for_one_turn_and_parts_come_along() -> None:
    spy = SpyModel("ok")
    agent = Agent("spy", model=spy, instructions="Be kind.")
    data = base64.b64encode(b"pixels").decode()
    parts = [{"type": "data", "media_type": "image/png", "data": data, "name": "a.png"}]
    async with serving(agent) as served:
        session = await opened(served, "spy")
        path = f"/v1/sessions/{session}/messages"
        body = {"text": "look", "instructions": "Be brief.", "parts": parts}
        assert (await served.http.post(path, json=body)).status_code == 202
        await inbox(served, session)
        await take(served, session, 1)
        await say(served, session, "and now?")
        await inbox(served, session)
        told = (await served.http.get(path)).json()["data"][0]

    first, second = spy.requests
    assert "Be brief." in first.instructions
    message = first.transcript[-1]
    assert isinstance(message, UserMessage)
    assert message.parts[0].data == b"pixels"
    assert "Be brief." not in second.instructions
    assert told["parts"] == [
        {"number": 1, "media_type": "image/png", "name": "a.png", "url": "", "bytes": 6}
    ]


async def test_sessions_and_runs_are_listed_apart() -> None:
    async with serving(echo()) as served:
        first, second = await opened(served), await opened(served)
        run = (await started(served, "echo"))["id"]
        listed = (await served.http.get("/v1/sessions")).json()
        page = (await served.http.get("/v1/sessions?limit=1")).json()
        runs = (await served.http.get("/v1/runs")).json()
        wrong = await served.http.get(f"/v1/sessions/{run}")

    assert [it["id"] for it in listed["data"]] == [second, first]
    assert [it["id"] for it in page["data"]] == [second]
    assert page["has_more"] is True
    assert {it["id"] for it in runs["data"]} == {first, second, run}
    assert wrong.status_code == 404
    assert f"/v1/runs/{run}" in problem(wrong)["message"]


async def test_a_conversation_is_renamed_and_keeps_its_other_notes(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(echo(), journal=journal) as served:
        session = await opened(served, metadata={"for": "Ann", "old": "yes"})
        path = f"/v1/sessions/{session}"
        changed = await served.http.post(path, json={"metadata": {"title": "Tea", "old": ""}})
        many = {f"note {number}": "x" for number in range(15)}
        refused = await served.http.post(path, json={"metadata": many})
    async with serving(echo(), journal=journal) as served:
        (run,) = (await served.http.get("/v1/runs")).json()["data"]
        kept = (await served.http.get(path)).json()

    assert changed.status_code == 200, changed.text
    assert changed.json()["metadata"] == {"for": "Ann", "title": "Tea"}
    assert problem(refused)["code"] == "too_much_metadata"
    assert kept["metadata"] == run["metadata"] == {"for": "Ann", "title": "Tea"}


async def test_a_message_that_no_turn_has_read_yet_is_shown_as_queued() -> None:
    lazy = worker("lazy", seconds=3600)
    async with serving(lazy) as served:
        session = await opened(served, "lazy")
        await say(served, session, "first")
        path = f"/v1/sessions/{session}"
        while not (page := (await served.http.get(f"{path}/messages")).json())["data"]:
            await trio.lowlevel.checkpoint()
        second = await say(served, session, "second")
        later = (await served.http.get(f"{path}/messages")).json()
        shown = (await served.http.get(path)).json()
        await served.http.post(f"{path}/close")

    assert page["queued"] == []
    assert [it["text"] for it in later["data"]] == ["first"]
    assert later["queued"] == [{"id": second["message"], "text": "second", "parts": []}]
    assert shown["about"] == "first"
    assert shown["created"] <= shown["changed"]


async def test_a_session_of_an_unserved_agent_takes_no_message(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(echo(), journal=journal) as served:
        session = await opened(served)
    async with serving(worker(), journal=journal) as served:
        answer = await served.http.post(f"/v1/sessions/{session}/messages", json={"text": "hello"})

    assert answer.status_code == 409
    assert problem(answer)["code"] == "no_agent"


async def test_an_invalid_request_is_refused_with_its_code() -> None:
    part = {"type": "data", "media_type": "image/png", "data": "no base64!"}
    async with serving(echo()) as served:
        session = await opened(served)
        path = f"/v1/sessions/{session}"
        answers = [
            await served.http.request(method, url, json=body)
            for method, url, body in [
                ("POST", "/v1/sessions", {"model": "nobody"}),
                ("GET", "/v1/sessions/r_nobody", None),
                ("POST", "/v1/sessions/r_nobody/messages", {"text": "x"}),
                ("GET", "/v1/sessions/r_nobody/inbox", None),
                ("DELETE", f"{path}/inbox/1", None),
                ("DELETE", f"{path}/inbox/first", None),
                ("DELETE", f"{path}/inbox/{'9' * 5000}", None),
                ("POST", "/v1/sessions", {}),
                ("POST", f"{path}/messages", {"text": "x", "parts": [part]}),
                ("POST", f"{path}/messages", {"text": 1}),
                ("GET", f"{path}/inbox?wait=1000", None),
            ]
        ]

    assert [it.status_code for it in answers] == [404] * 7 + [400] * 4
    assert all(problem(it) for it in answers)


async def test_a_reply_that_is_not_taken_is_read_when_its_session_was_evicted() -> None:
    async with serving(echo()) as served:
        cache = served.orchestrator._engine.book.cache
        session = await opened(served)
        await say(served, session, "hello")
        first = await inbox(served, session)
        # The door is closed after the reply is in the inbox.
        with trio.fail_after(20):
            while session in cache.active:
                await served.orchestrator.read.wait_session_changed(session)
        cache.evict_resting()
        assert session not in served.orchestrator.read.records.sessions
        with trio.fail_after(10):
            again = await inbox(served, session, wait=60)
        taken = await take(served, session, 1)
        after = await inbox(served, session, wait=0)

    assert first == again != []
    assert (taken, after) == (200, [])


async def test_a_session_that_never_gets_a_message_leaves_the_memory() -> None:
    async with serving(echo()) as served:
        cache = served.orchestrator._engine.book.cache
        first = await opened(served)
        await opened(served)
        assert first not in cache.active
        cache.evict_resting()
        assert first not in served.orchestrator.read.records.sessions
        await say(served, first, "hello")
        assert (await inbox(served, first))[0]["text"] == "1: hello"
