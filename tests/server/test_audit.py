"""The audit of requests: who did what, recorded before the answer, and bounded where refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from orchestrator import MemoryJournal
from orchestrator.agents import Agent, ModelError, ScriptedModel
from orchestrator.agents.approval import confirm
from orchestrator.cli.app import run_command
from orchestrator.delegation import Ledger, SessionId
from orchestrator.kernel.journal.audit import AuditEvent, AuditLog
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.refusals import MOST_ROWS, SPAN_SECONDS, RefusalCounter
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.kernel.journal.sqlite.store import SQLiteStore
from orchestrator.products.server.app import OPERATIONS
from orchestrator.products.server.keys.file import FILE
from orchestrator.products.server.state import Settings
from orchestrator.schedule import Job
from tests.kit import hand_on, worker
from tests.orchestrator.approvals_kit import Shell
from tests.orchestrator.approvals_kit import run as shell_run
from tests.server.kit import TOKEN, Served, serving
from tests.server.runs_kit import ended, started

pytestmark = pytest.mark.realtime
to_thread = trio.to_thread.run_sync


def recorded(journal: MemoryJournal) -> list[AuditEvent]:
    """Return what was done over HTTP: neither start nor stop of the server."""
    return [row.event for row in journal.audit if not row.event.action.startswith("server.")]


def actions(events: Sequence[AuditEvent]) -> list[tuple[str, str]]:
    return [(it.action, it.target) for it in events]


async def post(served: Served, path: str, **body: Any) -> Any:
    answer = await served.http.post(path, json=body)
    assert answer.status_code < 300, answer.text
    return answer.json()


async def test_every_write_is_recorded_when_it_is_answered() -> None:  # noqa: PLR0915 (all of them)
    journal = MemoryJournal()
    lazy = Agent(
        "lazy",
        model=ScriptedModel.always(hand_on("wait", agent="helper", background=True)),
        delegates=[worker("helper", seconds=1000)],
    )
    done: set[str] = set()

    def expect(action: str, target: str) -> None:
        event = recorded(journal)[-1]
        assert (event.action, event.target) == (action, target)
        assert (event.actor, event.owner) == ("key:default", "default")
        assert (event.outcome, event.peer, event.count) == ("accepted", "127.0.0.1", 1)
        done.add(action)

    brief = Job("0 8 * * *", worker(), "Write.", name="brief", zone="UTC")
    settings = Settings(token=TOKEN, may_default_approve=True, jobs=[brief])
    async with serving(worker(), lazy, journal=journal, settings=settings) as served:
        run = (await started(served, "worker"))["id"]
        expect("create_run", run)
        await ended(served, run)
        slow = (await started(served, "lazy"))["id"]
        await post(served, f"/v1/tasks/{slow}/steer", text="hurry")
        expect("steer_task", slow)
        await post(served, f"/v1/tasks/{slow}/pause")
        expect("pause_task", slow)
        await post(served, f"/v1/tasks/{slow}/unpause")
        expect("unpause_task", slow)
        await post(served, f"/v1/tasks/{slow}/cancel")
        expect("cancel_task", slow)
        again = await post(served, f"/v1/tasks/{slow}/retry")
        expect("retry_task", again["id"])
        below = (await served.http.get(f"/v1/tasks/{slow}")).json()["children"]
        other = await post(served, f"/v1/tasks/{below[0]}/fork")
        expect("fork_task", other["id"])
        slow = (await started(served, "lazy"))["id"]
        await post(served, f"/v1/runs/{slow}/cancel")
        expect("cancel_run", slow)
        await served.http.delete(f"/v1/runs/{run}")
        expect("delete_run", run)

        session = (await post(served, "/v1/sessions", model="worker"))["id"]
        expect("create_session", session)
        await post(served, f"/v1/sessions/{session}", metadata={"title": "Tea"})
        expect("change_session", session)
        await post(served, f"/v1/sessions/{session}/messages", text="hello")
        expect("tell_session", session)
        await served.http.get(f"/v1/sessions/{session}/inbox?wait=10")
        await served.http.delete(f"/v1/sessions/{session}/inbox/1")
        expect("take_reply", session)
        branch = await post(served, f"/v1/sessions/{session}/branch", before=1)
        expect("branch_session", branch["id"])
        await post(served, f"/v1/sessions/{session}/cancel")
        expect("cancel_turn", session)
        await post(served, f"/v1/sessions/{session}/close")
        expect("close_session", session)

        chat = await served.http.post(
            "/v1/chat/completions",
            json={"model": "worker", "messages": [{"role": "user", "content": "x"}]},
        )
        expect("create_chat_completion", chat.headers["x-run-id"])
        made = await served.http.post(
            "/v1/responses", json={"model": "lazy", "input": "x", "background": True}
        )
        expect("create_response", made.headers["x-run-id"])
        response = made.json()["id"]
        await post(served, f"/v1/responses/{response}/cancel")
        expect("cancel_response", made.headers["x-run-id"])
        await served.http.delete(f"/v1/responses/{response}")
        expect("delete_response", made.headers["x-run-id"])

        text = await served.http.post("/v1/completions", json={"model": "worker", "prompt": "x"})
        expect("create_completion", text.headers["x-run-id"])
        chat = await served.http.post(
            "/v1/chat/completions",
            json={"model": "worker", "messages": [{"role": "user", "content": "x"}], "store": True},
        )
        message = await served.http.post(
            "/v1/messages",
            json={
                "model": "worker",
                "max_tokens": 100,
                "messages": [{"role": "user", "content": "x"}],
            },
        )
        expect("create_message", message.headers["x-run-id"])
        path = f"/v1/chat/completions/{chat.json()['id']}"
        await post(served, path, metadata={})
        expect("update_completion", chat.headers["x-run-id"])
        await served.http.delete(path)
        expect("delete_completion", chat.headers["x-run-id"])

        conversation = (await post(served, "/v1/conversations"))["id"]
        path, kept = f"/v1/conversations/{conversation}", f"r_{conversation[5:]}"
        expect("create_conversation", kept)
        await post(served, path, metadata={})
        expect("update_conversation", kept)
        said = [{"role": "user", "content": "x"}]
        added = await post(served, f"{path}/items", items=said)
        expect("create_items", kept)
        await served.http.delete(f"{path}/items/{added['data'][0]['id']}")
        expect("delete_item", kept)
        await served.http.delete(path)
        expect("delete_conversation", kept)

        await post(served, "/v1/jobs/brief", goal="Write less.")
        expect("edit_job", "brief")
        await post(served, "/v1/jobs/brief/pause")
        expect("pause_job", "brief")
        await post(served, "/v1/jobs/brief/resume")
        expect("resume_job", "brief")
        begun = await post(served, "/v1/jobs/brief/run")
        expect("run_job", "brief")
        await ended(served, begun["id"])
        scheduler = served.server.state.journals.first.scheduler
        session = SessionId((await post(served, "/v1/sessions", model="worker"))["id"])
        scheduler.set(session, scheduler.find("brief").spec)
        await served.http.delete(f"/v1/jobs/{session}:brief")
        expect("remove_job", f"{session}:brief")

    writes = {it.name for it in OPERATIONS if it.method != "GET"}
    not_here = {
        *("answer_approval", "count_input_tokens", "count_message_tokens"),
        *("create_simulation", "prune_runs", "resume_run", "retry_turn"),
    }
    assert writes - done == not_here, "tested below, writes nothing, or is new"
    assert [it.event.action for it in journal.audit][:: len(journal.audit) - 1] == [
        "server.start",
        "server.stop",
    ]
    whole = AuditLog(rows=journal.audit, head=journal.audit[-1].head)
    assert whole.find_break() is None


async def test_a_verdict_is_recorded_with_the_approval_it_is_about() -> None:
    journal = MemoryJournal()
    shell = Shell()
    slow = Agent(
        "slow",
        model=ScriptedModel([shell_run("make"), "done"]),
        tools=[shell.tool],
        approve=[confirm("terminal")],
    )
    async with serving(slow, journal=journal) as served:
        run = (await started(served, "slow"))["id"]
        while not (waiting := served.orchestrator.approvals):
            await served.orchestrator.wait_changed(after=served.orchestrator.read.last_seq)
        await post(served, f"/v1/approvals/{waiting[0].id}", answer="once")
    assert actions(recorded(journal)) == [("create_run", run), ("answer_approval", waiting[0].id)]


async def test_the_retry_of_a_turn_is_recorded() -> None:
    journal = MemoryJournal()
    broken = Agent("broken", model=ScriptedModel([ModelError("no money"), "done"]))
    async with serving(broken, journal=journal) as served:
        session = (await post(served, "/v1/sessions", model="broken"))["id"]
        await post(served, f"/v1/sessions/{session}/messages", text="hello")
        await served.http.get(f"/v1/sessions/{session}/inbox?wait=10")
        await post(served, f"/v1/sessions/{session}/retry")
    assert actions(recorded(journal))[-1] == ("retry_turn", session)


async def test_a_write_and_its_row_share_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path) as journal:
        async with serving(worker(), journal=journal) as served:
            await journal.wait_audited()
            before = journal.group.commits
            for _ in range(5):
                await post(served, "/v1/sessions", model="worker")
            assert journal.group.commits == before + 5
    with SQLiteStore(path).open_reader() as reader:
        log = reader.audit()
        rows = list(log.rows)
    assert [it.event.action for it in rows[1:-1]] == ["create_session"] * 5
    assert AuditLog(rows=rows, head=log.head).find_break() is None


async def test_refused_requests_are_counted_and_not_audited_one_by_one() -> None:
    journal = MemoryJournal()
    async with serving(worker(), journal=journal) as served:
        for number in range(40):
            wrong = {"authorization": f"Bearer wrong-{number}"}
            answer = await served.http.get("/v1/runs", headers=wrong)
            assert answer.status_code in {401, 429}
        for number in range(3):
            answer = await served.http.post(f"/v1/runs/r_{number}/cancel")
            assert answer.status_code == 404
        assert recorded(journal) == []
    refused = [it for it in recorded(journal) if it.action == "request"]
    assert {(it.actor, it.peer) for it in refused} == {("unknown", "127.0.0.1")}
    assert sum(it.count for it in refused) == 40
    assert len(refused) <= 2
    (missing,) = [it for it in recorded(journal) if it.action == "cancel_run"]
    assert (missing.outcome, missing.count, missing.target) == ("404", 3, "r_0")


async def test_reads_are_audited_only_on_request() -> None:
    for asked in (False, True):
        journal = MemoryJournal()
        settings = Settings(token=TOKEN, audit_reads=asked)
        async with serving(worker(), journal=journal, settings=settings) as served:
            await served.http.get("/v1/runs")
            await served.http.get("/health")
        expected = [("list_runs", "")] if asked else []
        assert actions(recorded(journal)) == expected


async def test_a_request_that_is_sent_again_is_counted_as_such() -> None:
    journal = MemoryJournal()
    async with serving(worker(), journal=journal) as served:
        for _ in range(3):
            await served.http.post(
                "/v1/runs",
                json={"agent": "worker", "input": "go"},
                headers={"idempotency-key": "k"},
            )
    first, again = recorded(journal)
    assert (first.outcome, first.count) == ("accepted", 1)
    assert (again.outcome, again.count, again.action) == ("202", 2, "create_run")


async def test_key_changes_are_audited_by_the_server_and_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    file = tmp_path / FILE

    def keys(*arguments: str) -> None:
        assert run_command(["keys", *arguments, "--journal", str(path)]) == 0
        capsys.readouterr()

    await to_thread(keys, "add", "early")
    settings = Settings(token=TOKEN, keys=file)
    async with serving(worker(), journal=path, settings=settings) as served:
        await to_thread(keys, "add", "ann")
        await served.http.get("/v1/runs")
        await to_thread(keys, "rotate", "ann")
        await served.http.get("/v1/runs")
        await to_thread(keys, "revoke", "ann")
    await to_thread(keys, "add", "bob")

    with SQLiteStore(path).open_reader() as reader:
        rows = [row.event for row in reader.audit().rows]
    assert [(it.action, it.target) for it in rows if it.action.startswith("keys.")] == [
        ("keys.add", "ann"),
        ("keys.change", "ann"),
        ("keys.revoke", "ann"),
        ("keys.add", "bob"),
    ]


async def test_an_attacker_with_many_addresses_gets_a_bounded_number_of_rows(
    autojump_clock: MockClock,
) -> None:
    journal = MemoryJournal()
    book = Bookkeeper(journal, Ledger(), clock=trio.current_time)
    counter = RefusalCounter(book)

    def rows() -> list[AuditEvent]:
        return [row.event for row in journal.audit]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(counter.record_forever)
        for number in range(10_000):
            counter.count(AuditEvent(actor="unknown", action="request", peer=f"10.{number}"))
        await trio.sleep(SPAN_SECONDS + 1)
        assert len(rows()) == MOST_ROWS + 1
        assert sum(it.count for it in rows()) == 10_000
        assert rows()[-1].peer == "others"
        await trio.sleep(10 * SPAN_SECONDS)
        assert len(rows()) == MOST_ROWS + 1
        # A process that must end at once closes its book first; that breaks nothing.
        counter.count(AuditEvent(actor="unknown", action="request"))
        book.close()
        await trio.sleep(10 * SPAN_SECONDS)
        assert len(rows()) == MOST_ROWS + 1
        nursery.cancel_scope.cancel()
