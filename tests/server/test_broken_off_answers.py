"""Live readers, the cancel's own answer and later reads agree on an answer that is broken off."""

from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, Limits, ModelError
from tests.kit import hand_on
from tests.server.kit import serving
from tests.server.runs_kit import ended, started
from tests.server.streaming_kit import speaker

pytestmark = pytest.mark.realtime

SAID = "It is so "


def poet(**options: Any) -> Agent[Any]:
    return Agent("poet", model=speaker(("It is ", "so ", trio.Event())), **options)


async def test_a_response_that_is_cancelled_reads_the_same_live_and_later(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    live: list[dict[str, Any]] = []
    async with serving(poet(), journal=journal) as served:
        responses = served.openai.responses
        stream = await responses.create(model="poet", input="?", background=True, stream=True)
        async with trio.open_nursery() as nursery:
            cancelled: list[Any] = []

            async def cancel(id_: str) -> None:
                cancelled.append((await responses.cancel(id_)).to_dict(mode="json"))

            async for event in stream:
                live.append(event.to_dict(mode="json"))
                if getattr(event, "delta", "").endswith("so "):
                    nursery.start_soon(cancel, live[0]["response"]["id"])
        id_ = live[0]["response"]["id"]
        run = id_.replace("resp_", "r_")
        later = (await responses.retrieve(id_)).to_dict(mode="json")
        runs = (await served.http.get(f"/v1/runs/{run}")).json()
        task = (await served.http.get(f"/v1/tasks/{run}")).json()
        said = (await served.http.get(f"/v1/tasks/{run}/transcript")).json()["data"]
    async with serving(poet(), journal=journal) as served:
        after_restart = (await served.openai.responses.retrieve(id_)).to_dict(mode="json")

    (answer,) = cancelled
    (item,) = live[-1]["response"]["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", SAID)
    assert answer["output"] == later["output"] == after_restart["output"] == [item]
    assert runs["output"] == task["output"] == SAID
    assert runs["usage"] == task["usage"]
    assert (runs["usage"]["calls"], runs["usage"]["estimated"]) == (1, 1)
    assert answer["usage"] == later["usage"] == live[-1]["response"]["usage"]
    assert answer["usage"]["output_tokens"] == 3
    assert (said[-1]["text"], said[-1]["incomplete"]) == (SAID, True)


async def test_a_timed_out_run_and_its_child_keep_their_partial_text() -> None:
    child = poet(limits=Limits(seconds=0.2))
    lead = Agent(
        "lead",
        model=speaker(hand_on("x", agent="poet", background=False), "end"),
        delegates=[child],
    )
    async with serving(lead, poet(limits=Limits(seconds=0.2))) as served:
        run = await ended(served, (await started(served, "poet"))["id"])
        above = await ended(served, (await started(served, "lead"))["id"])
        tree = (await served.http.get(f"/v1/runs/{above['id']}/tree?format=text")).text
        root = (await served.http.get(f"/v1/tasks/{above['id']}")).json()
        below = (await served.http.get(f"/v1/tasks/{root['children'][0]}")).json()

    assert (run["status"], run["output"]) == ("failed", SAID)
    assert (below["status"], below["output"]) == ("timed_out", SAID)
    assert below["usage"]["estimated"] == root["total"]["estimated"] == 1
    assert "~" in tree


async def test_a_response_keeps_it_while_a_later_turn_runs() -> None:
    """A turn that took too long is followed by one that a detached task wakes."""
    model = speaker(
        ("I ask.", hand_on("x", background=True)),
        ("It is ", "so ", ModelError("gone", partial=SAID)),
        (trio.Event(),),
    )
    gate = trio.Event()
    helper = Agent("helper", model=speaker((gate, "found it")))
    lead = Agent("lead", model=model, delegates=[helper])
    async with serving(lead) as served:
        responses = served.openai.responses
        begun = await responses.create(model="lead", input="?", background=True)
        await model.wait_called(2)
        gate.set()
        await model.wait_called(3)
        midst: Any = (await responses.retrieve(begun.id)).to_dict(mode="json")

    assert midst["status"] == "in_progress"
    texts = [(it["content"][0]["text"], it["status"]) for it in midst["output"]]
    assert texts == [("I ask.\n\n", "completed"), (SAID, "incomplete")]


async def test_a_conversation_has_it_in_its_messages_and_in_its_inbox() -> None:
    said = trio.Event()

    async def has_said() -> None:
        await trio.lowlevel.checkpoint()
        said.set()

    spy = speaker(("It is ", "so ", has_said, trio.Event()), "and not otherwise")
    async with serving(Agent("poet", model=spy)) as served:
        opened = (await served.http.post("/v1/sessions", json={"model": "poet"})).json()
        session = f"/v1/sessions/{opened['id']}"
        await served.http.post(f"{session}/messages", json={"text": "?"})
        await said.wait()
        cancelled = (await served.http.post(f"/v1/tasks/{opened['id']}/cancel")).json()
        inbox = (await served.http.get(f"{session}/inbox?wait=5")).json()["data"]
        messages = (await served.http.get(f"{session}/messages")).json()["data"]
        shown = (await served.http.get(session)).json()
        await served.http.post(f"{session}/messages", json={"text": "go on"})
        await spy.wait_called(2)

    assert cancelled["output"] == inbox[0]["text"] == messages[-1]["text"] == SAID
    assert messages[-1]["incomplete"]
    assert shown["usage"]["estimated"] == 1
    assert spy.texts[-1] == ["?", SAID, "go on"]
