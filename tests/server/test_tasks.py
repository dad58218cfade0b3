"""Tasks and approvals over HTTP: looked at, read, steered, cancelled, let go on."""

import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator.agents import Agent, ScriptedModel, ToolMessage, Transcript, UserMessage
from orchestrator.agents.approval import confirm
from orchestrator.delegation.events import ApprovalAnswered
from tests.kit import hand_on, worker
from tests.orchestrator.approvals_kit import Shell
from tests.orchestrator.approvals_kit import run as shell_run
from tests.server.kit import TOKEN, Served, serving
from tests.server.runs_kit import boss, ended, problem, started

pytestmark = pytest.mark.realtime


async def until(served: Served, run: str, path: str, status: str) -> str:
    """Wait until a task of a run stands like this, and return its id."""
    tree = served.orchestrator.tree(run)
    seq = 0
    with trio.fail_after(10):
        while True:
            found = tree.at(path)
            if found is not None and tree[found].status == status:
                return found
            seq = await served.orchestrator.wait_changed(after=seq)


async def test_a_task_shows_its_place_times_and_usage() -> None:
    async with serving(boss()) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        root = (await served.http.get(f"/v1/tasks/{run['id']}")).json()
        first = await served.http.get(f"/v1/tasks/{root['children'][0]}")

    task = first.json()
    assert first.headers["x-run-id"] == run["id"]
    assert (root["path"], root["mode"], root["parent"]) == ("/boss", "root", None)
    assert len(root["children"]) == 2
    assert task["run"] == task["parent"] == run["id"]
    assert task["path"] == "/boss/helper[1]"
    assert (task["agent"], task["goal"], task["status"]) == ("helper", "one", "succeeded")
    assert (task["mode"], task["reason"]) == ("detached", "can_be_told_later")
    assert task["output"] == "found it"
    assert task["usage"]["calls"] == 1
    assert task["created"] <= task["started"] <= task["ended"]
    assert root["total"]["calls"] == run["usage"]["calls"]


async def looked_at(served: Served, task: str) -> list[Any]:
    """Return a task and its transcript; the journal may have grown meanwhile."""
    shown = (await served.http.get(f"/v1/tasks/{task}")).json()
    said = (await served.http.get(f"/v1/tasks/{task}/transcript")).json()
    return [{**shown, "seq": 0}, said]


async def second_child(served: Served) -> str:
    """Have a run done, and return the second of the tasks in it."""
    run = await ended(served, (await started(served, "boss"))["id"])
    root = (await served.http.get(f"/v1/tasks/{run['id']}")).json()
    task: str = root["children"][1]
    return task


async def test_a_task_of_a_run_at_rest_is_found(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    async with serving(boss(), journal=journal) as served:
        task = await second_child(served)
        before = await looked_at(served, task)
    async with serving(boss(), journal=journal) as served:
        after = await looked_at(served, task)

    assert after == before
    assert after[1]["count"] == 2


async def test_a_task_that_is_forgotten_is_found_in_memory_s_journal() -> None:
    async with serving(boss()) as served:
        task = await second_child(served)
        before = await looked_at(served, task)
        forget_all(served)
        after = await looked_at(served, task)

    assert after == before


def forget_all(served: Served) -> None:
    """Evict the idle sessions, as happens when there are many."""
    book = served.orchestrator._engine.book
    book.cache.evict_resting()
    assert not book.ledger.tasks


async def test_a_transcript_has_messages_calls_and_answers_page_by_page() -> None:
    async with serving(boss(background=False)) as served:
        run = await ended(served, (await started(served, "boss", "look"))["id"])
        path = f"/v1/tasks/{run['id']}/transcript"
        whole = (await served.http.get(path)).json()
        pages = [
            (await served.http.get(f"{path}?limit=1&after={after}")).json()
            for after in range(whole["count"])
        ]
        beyond = (await served.http.get(f"{path}?after=100")).json()
        wrong = await served.http.get(f"{path}?limit=0")

    told, called, answered, last = whole["data"]
    assert (told["role"], told["text"], told["number"]) == ("user", "look", 1)
    assert called["calls"][0]["name"] == "delegate_task"
    assert called["usage"]["calls"] == 1
    assert (answered["role"], answered["call"]) == ("tool", called["calls"][0]["id"])
    assert "found it" in answered["text"]
    assert last["text"] == "they are at it"
    assert [page["data"][0] for page in pages] == whole["data"]
    assert [page["has_more"] for page in pages] == [True, True, True, False]
    assert beyond["data"] == []
    assert wrong.status_code == 400


async def test_the_transcript_of_an_ended_task_is_read_from_the_journal() -> None:
    async with serving(boss()) as served:
        run = await ended(served, (await started(served, "boss"))["id"])
        root = (await served.http.get(f"/v1/tasks/{run['id']}")).json()
        path = f"/v1/tasks/{root['children'][0]}/transcript"
        said = (await served.http.get(path)).json()

    assert [it["role"] for it in said["data"]] == ["user", "assistant"]
    assert "one" in said["data"][0]["text"]
    assert said["data"][1]["text"] == "found it"


async def test_cancelling_a_task_joins_its_subtree() -> None:
    leaf = worker("leaf", seconds=1_000)
    middle = Agent("helper", model=ScriptedModel.always(hand_on("deep")), delegates=[leaf])
    async with serving(boss(helper=middle)) as served:
        run = (await started(served, "boss"))["id"]
        task = await until(served, run, "/boss/helper[1]", "running")
        await until(served, run, "/boss/helper[1]/leaf[1]", "running")
        answer = await served.http.post(f"/v1/tasks/{task}/cancel")
        tree = served.orchestrator.tree(run)
        below = [tree[it].status for it in tree.descendants(tree.at(task))]
        again = await served.http.post(f"/v1/tasks/{task}/cancel")
        state = (await served.http.get(f"/v1/runs/{run}")).json()["status"]

    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert answer.json()["seq"]
    assert below == ["cancelled"]
    assert again.json()["status"] == "cancelled"
    assert state == "in_progress"


ANN = "key default, who claims to be 'Ann'"


class Slow:
    """An agent whose command waits for an approval."""

    def __init__(self) -> None:
        self.shell = Shell()
        self.heard: list[str] = []
        self.agent = Agent(
            "slow",
            model=ScriptedModel.always(self._say),
            tools=[self.shell.tool],
            approve=[confirm("terminal")],
        )

    def _say(self, transcript: Transcript) -> Any:
        answers = [it.text for it in transcript if isinstance(it, ToolMessage)]
        if not answers:
            return shell_run("make")
        self.heard += [it.text for it in transcript if isinstance(it, UserMessage) and it.aside]
        return answers[0]


async def test_steering_reaches_the_model_once() -> None:
    slow = Slow()
    key = {"idempotency-key": "k"}
    body = {"text": "hurry"}
    async with serving(slow.agent) as served:
        run = (await started(served, "slow"))["id"]
        await until(served, run, "/slow", "waiting")
        path = f"/v1/tasks/{run}/steer"
        first = await served.http.post(path, json=body, headers=key)
        again = await served.http.post(path, json=body, headers=key)
        other = await served.http.post(path, json={"text": "no"}, headers=key)
        (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
        await served.http.post(f"/v1/approvals/{waiting['id']}", json={"answer": "once"})
        await ended(served, run)
        seen = await served.http.post(path, json=body, headers=key)
        late = await served.http.post(path, json={"text": "too late"})

    assert slow.heard == ["Message from outside, while you work:\nhurry"]
    assert (first.status_code, first.json()["state"]) == (200, "waiting")
    assert again.json()["message"] == first.json()["message"]
    assert other.status_code == 422
    assert problem(other)["code"] == "idempotency_key_reused"
    assert (seen.json()["state"], seen.json()["seen_at"]) == ("seen", 2)
    assert late.json()["state"] == "gone"


def waiting_boss(heard: list[str]) -> Agent:
    """Return one that hands something on which takes long, and then waits for it."""

    def answer(transcript: Transcript) -> Any:
        if len(transcript) == 1:
            return hand_on("dig", agent="slow", background=True)
        heard.append(transcript[-1].text)
        return "so be it"

    slow = worker("slow", seconds=1_000)
    return Agent("boss", model=ScriptedModel.always(answer), delegates=[slow])


async def test_steering_a_run_that_waits_for_children_starts_a_turn() -> None:
    heard: list[str] = []
    async with serving(waiting_boss(heard)) as served:
        run = (await started(served, "boss"))["id"]
        await until(served, run, "/boss", "waiting")
        for _ in range(2):
            answer = await served.http.post(
                f"/v1/tasks/{run}/steer",
                json={"text": "do without"},
                headers={"idempotency-key": "once"},
            )
            assert answer.json()["state"] == "waiting"
        seq = 0
        with trio.fail_after(10):
            while "do without" not in heard:
                seq = await served.orchestrator.wait_changed(after=seq)

    assert heard.count("do without") == 1


async def test_cancelling_the_root_task_cancels_the_run() -> None:
    """The news of its children would wake it otherwise."""
    heard: list[str] = []
    async with serving(waiting_boss(heard)) as served:
        run = (await started(served, "boss"))["id"]
        await until(served, run, "/boss", "waiting")
        before = list(heard)
        await served.http.post(f"/v1/tasks/{run}/cancel")
        shown = (await served.http.get(f"/v1/runs/{run}")).json()

    assert (shown["status"], shown["tasks"]["cancelled"]) == ("cancelled", 1)
    assert heard == before


async def test_a_receipt_is_waited_for() -> None:
    slow = Slow()
    async with serving(slow.agent) as served:
        run = (await started(served, "slow"))["id"]
        await until(served, run, "/slow", "waiting")
        got: list[Any] = []

        async def steer() -> None:
            body = {"text": "hurry", "seconds": 30}
            got.append(await served.http.post(f"/v1/tasks/{run}/steer", json=body))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(steer)
                seq = 0
                while not served.orchestrator.read.records.tasks[run].steering:
                    seq = await served.orchestrator.wait_changed(after=seq)
                (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
                await served.http.post(f"/v1/approvals/{waiting['id']}", json={"answer": "once"})

    assert got[0].json()["state"] == "seen"


async def test_an_approval_lets_a_waiting_command_go_on() -> None:
    slow = Slow()
    async with serving(slow.agent) as served:
        run = (await started(served, "slow"))["id"]
        await until(served, run, "/slow", "waiting")
        shown = (await served.http.get(f"/v1/runs/{run}")).json()
        listed = (await served.http.get("/v1/runs?status=waiting")).json()["data"]
        (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
        path = f"/v1/approvals/{waiting['id']}"
        answers = [
            await served.http.post(path, json=body, headers=headers)
            for body, headers in [
                ({"answer": "once", "reason": "fine"}, {"x-session-user-name": "Ann"}),
                ({"answer": "once"}, {}),
                ({"answer": "deny"}, {}),
            ]
        ]
        over = await ended(served, run)
        afterwards = await served.http.post(path, json={"answer": "once"})
        left = (await served.http.get("/v1/approvals")).json()["data"]
        kept = await served.orchestrator.read.entries(over["id"])

    assert shown["status"] == "waiting"
    assert [it["id"] for it in listed] == [run]
    assert (waiting["run"], waiting["tool"], waiting["subject"]) == (run, "terminal", "make")
    assert [it.status_code for it in answers] == [200, 200, 409]
    assert answers[0].json()["by"] == ANN
    assert answers[1].json()["by"] == ANN
    assert problem(answers[2])["code"] == "answered_already"
    assert afterwards.status_code == 200
    assert slow.shell.ran == ["make"]
    assert left == []
    facts = [it.event for it in kept if isinstance(it.event, ApprovalAnswered)]
    assert [(it.by, it.reason) for it in facts] == [(ANN, "fine")]


async def test_a_denial_is_read_by_the_agent() -> None:
    slow = Slow()
    async with serving(slow.agent) as served:
        run = (await started(served, "slow"))["id"]
        await until(served, run, "/slow", "waiting")
        (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
        body = {"answer": "deny", "reason": "not today"}
        await served.http.post(f"/v1/approvals/{waiting['id']}", json=body)
        over = await ended(served, run)

    assert slow.shell.ran == []
    assert "denied by key default: not today" in over["output"]


APPROVE = """
import socket, sys
port, path, token, *rest = sys.argv[1:]
body = b'{"answer": "session"}'
head = f"POST {path} HTTP/1.1\\r\\nHost: localhost\\r\\nAuthorization: Bearer {token}\\r\\n"
head += "Connection: close\\r\\n"
head += f"Content-Type: application/json\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
with socket.create_connection(("127.0.0.1", int(port))) as there:
    there.sendall(head.encode() + body)
    if not rest:
        print(there.makefile().read())
"""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc")
@pytest.mark.parametrize("before", [[], ["env", "-i"]])
async def test_a_command_of_an_agent_cannot_approve_with_any_token(before: list[str]) -> None:
    slow = Slow()
    async with serving(slow.agent) as served:
        run = (await started(served, "slow"))["id"]
        await until(served, run, "/slow", "waiting")
        (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
        path = f"/v1/approvals/{waiting['id']}"
        command = [*before, sys.executable, "-c", APPROVE]
        command += [served.url.rpartition(":")[2], path, TOKEN]
        done = await trio.run_process(command, capture_stdout=True)
        await trio.run_process([*command, "and leave"])
        left = (await served.http.get("/v1/approvals")).json()["data"]
        by_a_person = await served.http.post(path, json={"answer": "deny"})

    assert b"HTTP/1.1 403" in done.stdout
    assert b'"not_from_a_person"' in done.stdout
    assert [it["id"] for it in left] == [waiting["id"]]
    assert by_a_person.status_code == 200
    assert slow.shell.ran == []


async def test_an_approval_without_a_waiting_call_is_over() -> None:
    slow = Slow()
    async with serving(slow.agent) as served:
        run = (await started(served, "slow"))["id"]
        await until(served, run, "/slow", "waiting")
        (waiting,) = (await served.http.get("/v1/approvals")).json()["data"]
        await served.http.post(f"/v1/runs/{run}/cancel")
        answer = await served.http.post(f"/v1/approvals/{waiting['id']}", json={"answer": "once"})

    assert answer.status_code == 409
    assert problem(answer)["code"] == "over"


async def test_an_invalid_request_is_refused_with_its_code() -> None:
    async with serving(worker()) as served:
        run = (await ended(served, (await started(served, "worker"))["id"]))["id"]
        answers = [
            await served.http.request(method, path, json=body)
            for method, path, body in [
                ("GET", "/v1/tasks/t_0123456789abcdef", None),
                ("GET", "/v1/tasks/no'thing\"/transcript", None),
                ("POST", "/v1/tasks/t_0123456789abcdef/cancel", None),
                ("POST", "/v1/tasks/t_0123456789abcdef/steer", {"text": "x"}),
                ("POST", "/v1/approvals/a_0123456789abcdef", {"answer": "once"}),
                ("POST", "/v1/approvals/anything", {"answer": "once"}),
                ("POST", f"/v1/tasks/{run}/steer", {"text": ""}),
                ("POST", f"/v1/tasks/{run}/steer", {"text": "x", "seconds": -1}),
                ("POST", "/v1/approvals/a_0123456789abcdef", {"answer": "perhaps"}),
            ]
        ]

    assert [it.status_code for it in answers] == [404] * 6 + [400] * 3
    assert {problem(it)["code"] for it in answers} == {"not_found", "invalid_body"}
