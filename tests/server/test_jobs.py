"""Jobs of a server: seen and changed over HTTP, paid for by keys, begun in one journal."""

import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio

from orchestrator import Machine, MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    Usage,
    allow,
)
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.backends import journals_at
from orchestrator.cli.app import run_command
from orchestrator.cli.exit_codes import USAGE
from orchestrator.delegation.events import JobOccurred, JobSet, SessionOpened
from orchestrator.delegation.events.jobs import JobId
from orchestrator.delegation.session_state import read_state
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.journals import HeldJournal
from orchestrator.products.schedule.job import session_of
from orchestrator.products.server.app import application
from orchestrator.products.server.cluster.cluster_server import ClusterSettings, open_cluster_server
from orchestrator.products.server.console.sign_in import HEADER
from orchestrator.products.server.keys.changes import add_key, revoke_key
from orchestrator.products.server.keys.key import ORDINARY, KeyLimits, Scope
from orchestrator.products.server.request_state import RequestState
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import ServerState, Settings
from orchestrator.products.server.transport.listener import Listening
from orchestrator.schedule import Job
from tests.kit import facts, worker
from tests.orchestrator.schedule_kit import BERLIN, DAY, HOUR, WallClock, brief
from tests.server.kit import NO_CERTIFICATES, TOKEN
from tests.server.runs_kit import problem
from tests.server.server_process import PATIENCE, server_process

EVERY_HOUR = {"action": "set", "name": "look", "schedule": "every 1h", "goal": "Look."}


def remind(transcript: Transcript) -> ToolCall | str:
    """Set a job when a person asks; tell what it said."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "I will."
    if last.text.startswith("[Job "):
        return "Seen."
    return "Nothing new." if last.text == "Look." else ToolCall("job", EVERY_HOUR)


HOST = Agent("host", model=ScriptedModel.always(remind), schedules=True, approve=[allow("job")])


@attrs.frozen(kw_only=True)
class Served:
    """A server without a socket, on the jumping clock."""

    orchestrator: Orchestrator
    http: httpx2.AsyncClient
    state: ServerState
    file: Path

    def key(self, name: str, scopes: Iterable[Scope] = ORDINARY, **more: Any) -> dict[str, str]:
        """Make a key, and return the header of its requests."""
        now = self.orchestrator.now()
        _, token = add_key(self.file, name, now=now, scopes=scopes, **more)
        return {"authorization": f"Bearer {token}"}

    async def ask(self, method: str, path: str, body: Any = None, **given: Any) -> httpx2.Response:
        return await self.http.request(method, path, json=body, **given)

    async def converse(self, **given: Any) -> str:
        """Have an agent set a job in a conversation, and return that."""
        made = await self.ask("POST", "/v1/sessions", {"model": "host"}, **given)
        id_: str = made.json()["id"]
        path = f"/v1/sessions/{id_}"
        await self.ask("POST", f"{path}/messages", {"text": "Look often."}, **given)
        await self.ask("GET", f"{path}/inbox?wait=10", **given)
        return id_


@asynccontextmanager
async def serving(
    *agents: Agent[Any],
    jobs: Sequence[Job] = (),
    folder: Path,
    clock: WallClock,
    journal: str | Path | Journal = ":memory:",
) -> AsyncGenerator[Served]:
    file = folder / "keys.json"
    settings = Settings(token=TOKEN, keys=file, jobs=jobs, clock=clock)
    async with (
        open_orchestrator(journal, machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {it.name: it for it in agents}, settings) as state,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(application(state)),
            base_url="http://test",
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=None,
        ) as http,
    ):
        yield Served(orchestrator=orchestrator, http=http, state=state, file=file)


async def test_a_job_of_the_program_is_seen_changed_and_run_over_http(tmp_path: Path) -> None:
    clock = WallClock("2026-11-17T07:00")
    # Its agent is served to no client.
    async with serving(HOST, jobs=[brief()], folder=tmp_path, clock=clock) as it:
        [job] = (await it.ask("GET", "/v1/jobs")).json()["data"]
        assert job == {
            "id": "writer",
            "object": "job",
            "agent": "writer",
            "goal": "Write the brief.",
            "schedule": "0 8 * * *",
            "zone": BERLIN,
            "catch_up": 7200.0,
            "session": None,
            "targets": [],
            "paused": False,
            "next": clock() // 1 + HOUR,
            "last_run": None,
        }
        paused = (await it.ask("POST", "/v1/jobs/writer/pause")).json()
        assert (paused["paused"], paused["next"]) == (True, None)
        await clock.wait_until("2026-11-17T08:30")
        await it.ask("POST", "/v1/jobs/writer/resume")
        change = {"schedule": "0 10 * * *", "goal": "Write less.", "zone": "UTC"}
        changed = (await it.ask("POST", "/v1/jobs/writer", change)).json()
        assert {name: changed[name] for name in change} == change
        begun = await it.ask("POST", "/v1/jobs/writer/run")
        assert begun.status_code == 202
        await clock.wait_until("2026-11-17T11:30")
        times = (await it.ask("GET", "/v1/jobs/writer/history")).json()["data"]
        shown = [(time["by_hand"], time["status"]) for time in times]
        assert shown == [(False, "completed"), (True, "completed")]
        assert times[1]["run"] == begun.json()["id"]
        run = (await it.ask("GET", f"/v1/runs/{times[0]['run']}")).json()
        assert run["output"] == "News."
        listed = (await it.ask("GET", "/v1/runs")).json()["data"]
        assert [run["kind"] for run in listed] == ["job_run", "job_run"], "no job is a run"
        pruning = {"older_than": 0, "dry_run": True}
        kept = (await it.ask("POST", "/v1/runs/prune", pruning)).json()["active"]
        assert kept == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/jobs/nope", None, 404),
        ("GET", "/v1/jobs/r_1:writer", None, 404),
        ("POST", "/v1/jobs/nope/run", None, 404),
        ("DELETE", "/v1/jobs/writer", None, 409),
        ("POST", "/v1/jobs/writer", {}, 400),
        ("POST", "/v1/jobs/writer", {"schedule": "* * * *"}, 422),
        ("POST", "/v1/jobs/writer", {"schedule": "every 1s"}, 422),
        ("POST", "/v1/jobs/writer", {"schedule": f"{'9' * 5000} * * * *"}, 422),
        ("POST", "/v1/jobs/writer", {"goal": " "}, 422),
        ("POST", "/v1/jobs/writer", {"zone": "Mars"}, 422),
        ("POST", "/v1/jobs/writer", {"catch_up": "soon"}, 422),
        ("POST", "/v1/jobs/writer", {"deliver": ["file:/etc/passwd"]}, 400),
        ("POST", "/v1/jobs/writer", {"goal": 7}, 400),
    ],
)
async def test_a_wrong_request_is_refused_and_sets_no_job(
    tmp_path: Path, method: str, path: str, body: Any, status: int
) -> None:
    journal, clock = MemoryJournal(), WallClock("2026-11-17T07:00")
    async with serving(HOST, jobs=[brief()], folder=tmp_path, clock=clock, journal=journal) as it:
        answer = await it.ask(method, path, body)

    assert answer.status_code == status, answer.text
    assert len(facts(journal.entries, JobSet)) == 1


async def test_no_request_closes_the_session_of_a_program_job(tmp_path: Path) -> None:
    journal, clock = MemoryJournal(), WallClock("2026-11-17T07:00")
    own = session_of(JobId("writer"))
    for _ in range(2):
        # Were it closed, the next server could not set the job, and not begin.
        async with serving(
            HOST, jobs=[brief()], folder=tmp_path, clock=clock, journal=journal
        ) as it:
            for method, path in (
                ("POST", f"/v1/runs/{own}/cancel"),
                ("POST", f"/v1/tasks/{own}/cancel"),
                ("POST", f"/v1/tasks/{own}/fork"),
                ("DELETE", f"/v1/runs/{own}"),
                ("DELETE", f"/v1/conversations/{own}"),
            ):
                answer = await it.ask(method, path)
                assert answer.status_code == 404, (method, path, answer.text)
            [job] = (await it.ask("GET", "/v1/jobs")).json()["data"]
            assert job["id"] == "writer"


async def test_a_job_of_another_owner_hides_no_job_of_the_program(tmp_path: Path) -> None:
    jobs, clock = [brief(name="look")], WallClock("2026-11-17T07:00")
    async with serving(HOST, jobs=jobs, folder=tmp_path, clock=clock) as it:
        bob = {"headers": it.key("bob")}
        session = await it.converse(**bob)
        changed = await it.ask("POST", "/v1/jobs/look", {"goal": "Write less."})
        [of_bob] = (await it.ask("GET", "/v1/jobs", **bob)).json()["data"]

    assert changed.status_code == 200, changed.text
    assert session not in changed.text
    assert (of_bob["session"], of_bob["goal"]) == (session, "Look.")


async def test_a_job_of_an_agent_is_its_owners_and_survives_the_server(tmp_path: Path) -> None:
    journal, clock = MemoryJournal(), WallClock("2026-11-17T12:00")
    async with serving(HOST, folder=tmp_path, clock=clock, journal=journal) as it:
        ann, bob = {"headers": it.key("ann")}, {"headers": it.key("bob")}
        session = await it.converse(**ann)
        [job] = (await it.ask("GET", "/v1/jobs", **ann)).json()["data"]
        name = job["id"]
        assert (name, job["session"]) == (f"{session}:look", session)
        assert (await it.ask("GET", "/v1/jobs", **bob)).json()["data"] == []
        for method, path in (
            ("GET", f"/v1/jobs/{name}"),
            ("GET", f"/v1/jobs/{name}/history"),
            ("POST", f"/v1/jobs/{name}/run"),
            ("POST", f"/v1/jobs/{name}/pause"),
            ("DELETE", f"/v1/jobs/{name}"),
        ):
            assert (await it.ask(method, path, **bob)).status_code == 404
    async with serving(HOST, folder=tmp_path, clock=clock, journal=journal) as it:
        await clock.wait_until("2026-11-17T13:30")
        inbox = (await it.ask("GET", f"/v1/sessions/{session}/inbox", **ann)).json()
        assert [reply["text"] for reply in inbox["data"]] == ["I will.", "Seen."]
        [time_] = (await it.ask("GET", f"/v1/jobs/{name}/history", **ann)).json()["data"]
        run = (await it.ask("GET", f"/v1/runs/{time_['run']}", **ann)).json()
        assert run["output"] == "Nothing new."
        assert (await it.ask("GET", f"/v1/runs/{run['id']}", **bob)).status_code == 404
        removed = await it.ask("DELETE", f"/v1/jobs/{name}", **ann)
        assert removed.json() == {"id": name, "object": "job", "deleted": True}
        await clock.wait_until("2026-11-17T18:30")

    assert len(facts(journal.entries, JobOccurred)) == 1


async def test_each_job_action_needs_its_scope(tmp_path: Path) -> None:
    clock = WallClock("2026-11-17T07:00")
    async with serving(HOST, jobs=[brief()], folder=tmp_path, clock=clock) as it:
        eve = {"headers": it.key("eve", owner="default", scopes=[Scope.READ])}
        assert (await it.ask("GET", "/v1/jobs/writer", **eve)).status_code == 200
        for path in ("", "/run", "/pause", "/resume"):
            answer = await it.ask("POST", f"/v1/jobs/writer{path}", {}, **eve)
            assert problem(answer)["code"] == "missing_scope"
        steers = it.key("sam", owner="default", scopes=[Scope.STEER])
        new = {"goal": "Spend."}
        answer = await it.ask("POST", "/v1/jobs/writer", new, headers=steers)
        assert problem(answer)["code"] == "missing_scope", "it would begin runs"


async def test_the_limits_of_a_key_hold_for_its_jobs(tmp_path: Path) -> None:
    journal, clock = MemoryJournal(), WallClock("2026-11-17T12:00")
    async with serving(HOST, folder=tmp_path, clock=clock, journal=journal) as it:
        ann = {"headers": it.key("ann", limits=KeyLimits(runs_at_once=1))}
        session = await it.converse(**ann)
        gone = {"headers": it.key("gone")}
        await it.converse(**gone)
        revoke_key(it.file, "gone")
        await clock.wait_until("2026-11-17T13:30")
        told = (await it.ask("GET", f"/v1/sessions/{session}/inbox", **ann)).json()
        assert [reply["text"] for reply in told["data"]] == ["I will.", "Seen."]

    [begun, skipped] = facts(journal.entries, JobOccurred)
    if begun.skipped:
        begun, skipped = skipped, begun
    assert begun.session == session
    assert skipped.skipped == "the key 'gone' is no longer valid"
    opened = facts(journal.entries, SessionOpened)
    [run] = [it for it in opened if it.session == begun.run]
    assert read_state(run.states, RequestState).key_name == "ann"


async def test_a_job_of_a_person_in_the_console_runs(tmp_path: Path) -> None:
    journal, clock = MemoryJournal(), WallClock("2026-11-17T12:00")
    async with serving(HOST, folder=tmp_path, clock=clock, journal=journal) as it:
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(application(it.state)),
            base_url="http://test",
            headers={"sec-fetch-site": "same-origin"},
            timeout=None,
        ) as page:
            code = it.state.sign_ins.new_link()
            signed_in = await page.post("/console/login", json={"code": code})
            page.headers[HEADER] = signed_in.json()["secret"]
            await attrs.evolve(it, http=page).converse()
        await clock.wait_until("2026-11-17T13:30")

    [begun] = facts(journal.entries, JobOccurred)
    assert begun.run
    assert not begun.skipped


async def test_a_day_that_is_used_up_pays_for_no_job_and_the_next_one_does(tmp_path: Path) -> None:
    journal, clock = MemoryJournal(), WallClock("2026-11-17T12:00")
    async with serving(HOST, folder=tmp_path, clock=clock, journal=journal) as it:
        # A day begins.
        await trio.sleep(DAY - it.orchestrator.now() % DAY)
        ann = {"headers": it.key("ann", limits=KeyLimits(tokens_per_day=1_000_000))}
        await it.converse(**ann)
        for account in it.orchestrator.read.records.accounts.values():
            account.charge(Usage(input_tokens=1_000_000))
        await trio.sleep(HOUR + 60)
        [skipped] = facts(journal.entries, JobOccurred)
        assert "is used up" in skipped.skipped
        await trio.sleep(DAY)

    assert not facts(journal.entries, JobOccurred)[-1].skipped


@pytest.mark.realtime
async def test_servers_of_one_folder_begin_each_job_of_the_file_once(tmp_path: Path) -> None:
    """It stays a tenth of a second to the full hour until both know the job."""
    now, journals = [1_800_000_000 - 0.1], journals_at(f"{tmp_path / 'runs'}/")
    job = Job("0 * * * *", worker("worker"), "Write.", name="brief", zone="UTC")

    def clock() -> float:
        return now[0]

    @asynccontextmanager
    async def open_(held: HeldJournal) -> AsyncGenerator[Orchestrator]:
        async with open_orchestrator(held.journal, machine=Machine(environ={})) as orchestrator:
            yield orchestrator

    said: list[str] = []
    cluster = ClusterSettings(
        secret=b"secret" * 8,
        open_orchestrator=open_,
        clock=time.time,
        redactor=Redactor([]),
        sandbox=SandboxChoice("none"),
        report=said.append,
        host="",
    )
    settings = Settings(token=TOKEN, jobs=[job], clock=clock)
    agents = {"host": HOST}
    async with AsyncExitStack() as opened:
        servers = [
            await opened.enter_async_context(
                open_cluster_server(
                    journals, agents, settings, Listening(port=0), push={}, cluster=cluster
                )
            )
            for _ in range(2)
        ]
        first, second = [
            await opened.enter_async_context(
                httpx2.AsyncClient(
                    base_url=it.server.addresses[0],
                    headers={"authorization": f"Bearer {TOKEN}"},
                    verify=NO_CERTIFICATES,
                )
            )
            for it in servers
        ]
        assert [len(it.server.state.journals) for it in servers] == [1, 1]
        now[0] += 1
        read, seen = servers[0].server.state.journals.first.read, 0
        with trio.fail_after(PATIENCE):
            while not (await times(first))["data"]:
                await read.wait_posted(after=seen)
                seen = read.last_seq
        # Each server shows and changes the jobs that another one begins.
        assert len((await times(second))["data"]) == 1
        assert (await second.get("/v1/jobs")).json() == (await first.get("/v1/jobs")).json()
        assert (await second.post("/v1/jobs/brief/run")).status_code == 202
        assert len((await times(first))["data"]) == 2

    assert any("jobs of the file begin there" in line for line in said)


async def times(client: httpx2.AsyncClient) -> Any:
    answer = await client.get("/v1/jobs/brief/history")
    assert answer.status_code == 200, answer.text
    return answer.json()


FILE = """
from orchestrator import Agent, ScriptedModel
from orchestrator.schedule import Job

editor = Agent("editor", model=ScriptedModel.always("All is well."))
schedule = [Job("0 8 * * MON", editor, "Write the week.", name="week", zone="UTC")]
"""


@pytest.mark.realtime
async def test_the_command_sees_and_changes_the_jobs_of_a_server_that_was_killed_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def jobs(*arguments: str) -> int:
        return run_command(["jobs", *arguments, "--journal", str(tmp_path / "journal.db")])

    async with server_process(tmp_path, FILE) as server:
        command = trio.to_thread.run_sync
        assert await command(jobs, "pause", "week") == 0
        await server.kill()
        await server.start()
        assert await command(jobs, "list") == 0
        assert "paused" in capsys.readouterr().out
        assert await command(jobs, "resume", "week") == 0
        assert await command(jobs, "edit", "week", "--zone", "Mars") == USAGE
        assert await command(jobs, "run", "week") == 0
        run = capsys.readouterr().out.strip()
        async with server.http() as http:
            # The stream ends with the run.
            await http.get(f"/v1/runs/{run}/events")
            assert (await http.get(f"/v1/runs/{run}")).json()["output"] == "All is well."
