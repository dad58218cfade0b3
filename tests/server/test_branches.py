"""Turns that fail and are tried again, and branches of conversations, over HTTP."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from orchestrator.agents import Agent, ModelError, ScriptedModel, ToolCall, Transcript, UserMessage
from tests.server.kit import Served, serving
from tests.server.runs_kit import problem
from tests.server.test_sessions import echo, inbox, opened, say, take

pytestmark = pytest.mark.realtime
NO_MONEY = "there is no money"


def moody() -> Agent:
    """Return an agent whose model fails once after a message that says so."""
    failed: set[str] = set()

    def answer(transcript: Transcript) -> str | ModelError | ToolCall:
        said = [it.text for it in transcript if isinstance(it, UserMessage)][-1]
        if said.startswith("fail") and said not in failed:
            failed.add(said)
            return ModelError(NO_MONEY)
        if isinstance(transcript[-1], UserMessage) and said == "delegate":
            delegated = {"goal": "wait", "agent": "archivist", "background": True}
            return ToolCall("delegate_task", delegated)
        return f"Answer to {said}"

    archivist = Agent("archivist", model=ScriptedModel.always("found", 3600))
    return Agent("moody", model=ScriptedModel.always(answer), delegates=[archivist])


async def said(served: Served, session: str, text: str) -> None:
    """Send a message, and take the reply."""
    await say(served, session, text)
    reply = (await inbox(served, session))[-1]
    await take(served, session, reply["turn"])


def refused(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, problem(answer)["code"]


async def transcript(served: Served, session: str, query: str = "") -> Any:
    return (await served.http.get(f"/v1/sessions/{session}/messages{query}")).json()


async def test_failed_turns_stay_in_the_transcript_after_later_turns_and_a_restart(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal.db"
    async with serving(moody(), journal=journal) as served:
        session = await opened(served, "moody")
        for text in ("hello", "fail", "later"):
            await said(served, session, text)
        before = await transcript(served, session)
        page = await transcript(served, session, "?after=3")
    async with serving(moody(), journal=journal) as served:
        after = await transcript(served, session)

    assert after == before
    turns = before["turns"]
    assert [it["ending"] for it in turns] == ["succeeded", "failed", "succeeded"]
    assert [(it["first"], it["last"]) for it in turns] == [(1, 2), (3, 3), (4, 5)]
    assert NO_MONEY in turns[1]["error"]
    assert turns[1]["ended"] >= turns[1]["started"] >= turns[0]["ended"]
    # A page that begins where the failed turn ends has it, too.
    assert [it["number"] for it in page["turns"]] == [2, 3]


async def test_a_turn_that_fails_beside_a_background_task_is_in_the_transcript() -> None:
    async with serving(moody()) as served:
        session = await opened(served, "moody")
        await said(served, session, "delegate")
        await said(served, session, "fail beside it")
        turns = (await transcript(served, session))["turns"]
        shown = (await served.http.get(f"/v1/sessions/{session}")).json()

    assert shown["status"] == "in_progress"
    assert [it["ending"] for it in turns] == ["succeeded", "failed"]
    assert NO_MONEY in turns[1]["error"]


async def test_a_retry_answers_the_message_once_more_without_sending_it_again() -> None:
    async with serving(moody()) as served:
        session = await opened(served, "moody")
        await said(served, session, "fail")
        retry = f"/v1/sessions/{session}/retry"
        begun = await served.http.post(retry)
        reply = (await inbox(served, session))[-1]
        shown = await transcript(served, session)
        again = await served.http.post(retry)

    assert begun.status_code == 202, begun.text
    assert reply["text"] == "Answer to fail"
    assert [it["text"] for it in shown["data"]] == ["fail", "Answer to fail"]
    assert [it["ending"] for it in shown["turns"]] == ["failed", "succeeded"]
    assert refused(again) == (409, "nothing_to_retry")


async def test_a_branch_has_the_messages_before_and_leaves_the_conversation_alone() -> None:
    async with serving(echo()) as served:
        session = await opened(served)
        for text in ("one", "two", "three"):
            await said(served, session, text)
        branched = await served.http.post(f"/v1/sessions/{session}/branch", json={"before": 3})
        branch = branched.json()
        await said(served, branch["id"], "other")
        shown = await transcript(served, branch["id"])
        old = await transcript(served, session)
        beside = await served.http.post(f"/v1/sessions/{branch['id']}/branch", json={"before": 3})
        below = await served.http.post(f"/v1/sessions/{branch['id']}/branch", json={"before": 4})
        none = await served.http.post(f"/v1/sessions/{session}/branch", json={"before": 8})

    assert branched.status_code == 201
    assert [it["text"] for it in shown["data"]] == ["one", "1: one", "other", "2: other"]
    assert [(it["first"], it["last"]) for it in shown["turns"]] == [(3, 4)]
    assert len(old["data"]) == 6
    named = {"title": "one", "branch_of": session, "branch_at": "3"}
    assert branch["metadata"] == beside.json()["metadata"] == named
    assert below.json()["metadata"]["branch_of"] == branch["id"]
    assert refused(none) == (404, "no_message")


async def test_the_choices_of_a_conversation_hold_for_its_turns_and_branches() -> None:
    seen: list[str] = []

    def answer(transcript: Transcript) -> str:
        return transcript[-1].text

    class Noting(ScriptedModel):
        async def answer(self, request: Any) -> Any:
            seen.append(request.instructions)
            return await super().answer(request)

    agent = Agent("noting", instructions="Own.", model=Noting.always(answer))
    async with serving(agent) as served:
        session = await opened(served, "noting")
        path = f"/v1/sessions/{session}"
        changed = await served.http.post(
            path, json={"instructions": "Be brief.", "workspace": "maps"}
        )
        await said(served, session, "hello")
        branch = (await served.http.post(f"{path}/branch", json={"before": 1})).json()
        wrong = await served.http.post(path, json={"workspace": "../up"})
        unknown = await served.http.post(path, json={"language_model": "no:such"})
        entries = await served.orchestrator.read.entries(session)

    assert changed.json()["instructions"] == branch["instructions"] == "Be brief."
    assert changed.json()["workspace"] == branch["workspace"] == "maps"
    assert "Own." in seen[0]
    assert "Be brief." in seen[0]
    contexts = [it.event.context for it in entries if hasattr(it.event, "context")]
    assert [it["cwd"] for it in contexts] == ["maps"]
    assert wrong.status_code == 400
    assert refused(unknown) == (404, "language_model_not_found")
