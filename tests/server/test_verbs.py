"""Over HTTP: pause the starts of tasks, retry a task, fork from one, resume a run."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolMessage,
    Transcript,
)
from orchestrator.delegation.events import Entry, ModelAnswered
from orchestrator.products.server.api import copies
from orchestrator.products.server.keys.key import Scope
from orchestrator.testing import CrashedError, CrashingJournal, assert_laws
from tests.kit import FunctionModel, facts, hand_on
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import Served, serving
from tests.server.runs_kit import ended, problem, started
from tests.server.test_tasks import until

pytestmark = pytest.mark.realtime


class Team:
    """A lead that asks for two tasks; the second one fails until it is mended, or waits."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.asked: list[str] = []
        self.go_on = trio.Event()

    @property
    def agent(self) -> Agent:
        def lead(transcript: Transcript) -> Any:
            self.asked.append("lead")
            if isinstance(transcript[-1], ToolMessage):
                return f"{transcript[-1].text.count('is done')} of 2"
            return hand_on("one", "two", background=False)

        async def work(request: ModelRequest) -> str:
            goal = request.transcript[-1].text.splitlines()[-1]
            self.asked.append(goal)
            if goal == "two" and self.fails:
                raise ModelError("no two")
            if goal == "two":
                await self.go_on.wait()
            return f"{goal} is done"

        helper = Agent("helper", model=FunctionModel(work))
        model = ScriptedModel.always(lead)
        return Agent("lead", model=model, delegates=[helper])

    def mend(self) -> None:
        self.fails = False
        self.go_on.set()
        self.asked.clear()


async def act(served: Served, path: str, key: str = "") -> Any:
    headers = {"idempotency-key": key} if key else {}
    return await served.http.post(path, headers=headers)


async def task_of(served: Served, run: str, number: int) -> str:
    root = (await served.http.get(f"/v1/tasks/{run}")).json()
    task: str = root["children"][number]
    return task


async def test_a_failed_task_is_retried_in_a_new_run() -> None:
    team, journal = Team(fails=True), MemoryJournal()
    async with serving(team.agent, journal=journal) as served:
        run = await ended(served, (await started(served, "lead", metadata={"a": "b"}))["id"])
        second = await task_of(served, run["id"], 1)
        team.mend()
        begun = await act(served, f"/v1/tasks/{second}/retry", "k")
        twice = await act(served, f"/v1/tasks/{second}/retry", "k")
        again = await ended(served, begun.json()["id"])
        old = (await served.http.get(f"/v1/runs/{run['id']}")).json()

    assert (begun.status_code, twice.json()["id"]) == (202, again["id"])
    assert (old["output"], again["output"]) == ("1 of 2", "2 of 2")
    assert (again["kind"], again["metadata"]) == ("run", {"a": "b"})
    assert again["forked_from"] == f"{run['id']}/{second}"
    assert again["usage"]["calls"] == 2
    assert team.asked == ["two", "lead"]
    assert len(served.orchestrator.runs) == 2
    assert_laws(journal.entries)


async def test_a_run_is_forked_where_a_task_was_delegated() -> None:
    team = Team()
    team.mend()
    async with serving(team.agent) as served:
        run = await ended(served, (await started(served, "lead"))["id"])
        team.asked.clear()
        begun = await act(served, f"/v1/tasks/{await task_of(served, run['id'], 1)}/fork")
        again = await ended(served, begun.json()["id"])
        whole = await act(served, f"/v1/tasks/{run['id']}/fork")
        from_root = await ended(served, whole.json()["id"])

    assert begun.status_code == whole.status_code == 202
    assert again["output"] == from_root["output"] == "2 of 2"
    assert team.asked.count("two") == 2


async def test_a_retry_outlives_its_server() -> None:
    """It is a run in the background: the next server goes on with it by itself."""
    team, journal = Team(fails=True), MemoryJournal()
    async with serving(team.agent, journal=journal) as served:
        run = await ended(served, (await started(served, "lead"))["id"])
        second = await task_of(served, run["id"], 1)
        team.fails = False
        begun = (await act(served, f"/v1/tasks/{second}/retry")).json()
        await until(served, begun["id"], "/lead/helper[2]", "running")
    assert not facts(journal.entries, ModelAnswered)[-1].message.text.startswith("2")
    team.mend()
    async with serving(team.agent, journal=journal) as served:
        again = await ended(served, begun["id"])

    assert (again["status"], again["output"]) == ("completed", "2 of 2")
    assert_laws(journal.entries)


async def died(journal: MemoryJournal, team: Team) -> str:
    """Let a program run a team, and die while the second task works."""
    with pytest.raises(CrashedError):
        async with open_orchestrator(CrashingJournal(journal, after=6)) as it:
            await it.run(team.agent, "go")
    return next(entry.session for entry in journal.entries if entry.session)


async def test_an_interrupted_run_is_resumed_and_outlives_its_server() -> None:
    team, journal = Team(), MemoryJournal()
    run = await died(journal, team)
    paid = len(facts(journal.entries, ModelAnswered))
    async with serving(team.agent, journal=journal) as served:
        before = (await served.http.get(f"/v1/runs/{run}")).json()
        first = await act(served, f"/v1/runs/{run}/resume")
        again = await act(served, f"/v1/runs/{run}/resume")
        await until(served, run, "/lead/helper[2]", "running")
    team.mend()
    async with serving(team.agent, journal=journal) as served:
        after = await ended(served, run)
        late = await act(served, f"/v1/runs/{run}/resume")

    assert (before["status"], before["interrupted"], before["kind"]) == ("failed", True, "program")
    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["status"], first.json()["interrupted"]) == ("in_progress", False)
    assert (after["status"], after["output"], after["kind"]) == ("completed", "2 of 2", "run")
    assert (late.status_code, problem(late)["code"]) == (409, "not_interrupted")
    assert len(facts(journal.entries, ModelAnswered)) == 4 > paid
    assert_laws(journal.entries)


async def test_a_run_of_another_version_is_resumed_when_its_client_accepts_that() -> None:
    team, journal = Team(), MemoryJournal()
    run = await died(journal, team)
    team.go_on.set()
    async with serving(attrs.evolve(team.agent, version="2"), journal=journal) as served:
        refused = await act(served, f"/v1/runs/{run}/resume")
        unknown = await act(served, f"/v1/runs/{run}/resume?on_change=perhaps")
        still = (await served.http.get(f"/v1/runs/{run}")).json()
        accepted = await act(served, f"/v1/runs/{run}/resume?on_change=accept")
        after = await ended(served, run)

    assert (refused.status_code, problem(refused)["code"]) == (409, "changed_program")
    assert "no version of lead, which has version '2' now" in problem(refused)["message"]
    assert unknown.status_code == 400
    assert still["interrupted"] is True
    assert accepted.status_code == 202
    assert (after["status"], after["output"]) == ("completed", "2 of 2")


async def test_a_crash_anywhere_in_a_resumed_run_leaves_it_resumable() -> None:
    team, died_in = Team(), MemoryJournal()
    team.go_on.set()
    run = await died(died_in, team)
    whole = await resumed(died_in.entries, team, run)
    for length in range(len(died_in.entries) + 1, len(whole)):
        entries = await resumed(whole[:length], team, run)
        assert_laws(entries)
        answers = [it.message.text for it in facts(entries, ModelAnswered)]
        assert sorted(filter(None, answers)) == ["2 of 2", "one is done", "two is done"]


async def resumed(entries: list[Entry], team: Team, run: str) -> list[Entry]:
    journal = MemoryJournal(entries)
    async with serving(team.agent, journal=journal) as served:
        shown = (await served.http.get(f"/v1/runs/{run}")).json()
        if shown["interrupted"]:
            assert (await act(served, f"/v1/runs/{run}/resume")).status_code == 202
        assert (await ended(served, run))["output"] == "2 of 2"
    return journal.entries


async def test_a_paused_run_starts_no_new_task() -> None:
    """The pause holds in the next process, and is shown."""
    team, journal = Team(), MemoryJournal()
    third = hand_on("three", background=False)

    def lead(transcript: Transcript) -> Any:
        answered = sum(isinstance(it, ToolMessage) for it in transcript)
        return [hand_on("two", background=False), third, "end"][answered]

    agent = Agent("boss", model=ScriptedModel.always(lead), delegates=team.agent.delegates)
    async with serving(agent, journal=journal) as served:
        run = (await started(served, "boss"))["id"]
        await until(served, run, "/boss/helper[1]", "running")
        paused = await act(served, f"/v1/tasks/{run}/pause")
        again = await act(served, f"/v1/tasks/{run}/pause")
        team.mend()
        await until(served, run, "/boss/helper[2]", "queued")
    async with serving(agent, journal=journal) as served:
        await until(served, run, "/boss/helper[2]", "queued")
        shown = (await served.http.get(f"/v1/runs/{run}")).json()
        unpaused = await act(served, f"/v1/tasks/{run}/unpause")
        done = await ended(served, run)
        late = await act(served, f"/v1/tasks/{await task_of(served, run, 0)}/pause")

    assert (paused.json()["paused"], again.status_code) == (True, 200)
    assert (shown["paused"], shown["status"]) == (True, "in_progress")
    assert unpaused.json()["paused"] is False
    assert (done["output"], done["paused"]) == ("end", False)
    assert (late.status_code, problem(late)["code"]) == (409, "ended")


async def test_an_impossible_retry_or_fork_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    team = Team()
    async with serving(team.agent) as served:
        run = (await started(served, "lead"))["id"]
        await until(served, run, "/lead/helper[2]", "running")
        first = await task_of(served, run, 0)
        under_way = [
            problem(await act(served, f"/v1/tasks/{first}/{verb}")) for verb in ("retry", "fork")
        ]
        team.mend()
        await ended(served, run)
        resumes = problem(await act(served, f"/v1/runs/{run}/resume"))
        succeeded = await act(served, f"/v1/tasks/{first}/retry")
        nowhere = await act(served, "/v1/tasks/t_0000000000000000/retry")
        monkeypatch.setattr(copies, "MOST_FACTS", 3)
        too_large = await act(served, f"/v1/tasks/{first}/fork")

    assert [it["code"] for it in under_way] == ["cannot_be_copied"] * 2
    assert "has not ended, and can go on" in under_way[0]["message"]
    assert resumes["code"] == "not_interrupted"
    assert succeeded.status_code == 202, "a task that has succeeded can be repeated"
    assert nowhere.status_code == 404
    assert (too_large.status_code, "orchestrator fork" in too_large.text) == (409, True)


async def test_a_run_of_an_unserved_agent_stays_unchanged() -> None:
    team, journal = Team(), MemoryJournal()
    team.go_on.set()
    run = await died(journal, team)
    other = Agent("other", model=ScriptedModel.always("hi"))
    async with serving(other, journal=journal) as served:
        answers = [
            await act(served, path) for path in (f"/v1/runs/{run}/resume", f"/v1/tasks/{run}/fork")
        ]

    for answer in answers:
        assert (answer.status_code, problem(answer)["code"]) == (409, "agent_not_served")


async def test_each_verb_needs_its_scope_and_its_owner(tmp_path: Path) -> None:
    team = Team(fails=True)
    async with serving_with_keys(team.agent, folder=tmp_path) as server:
        mine = server.new_token("mine")
        reader = server.new_token("reader", owner="mine", scopes=[Scope.READ])
        other = server.new_token("other")
        body = {"agent": "lead", "input": "go"}
        run = (await server.ask(mine, "POST", "/v1/runs", body)).json()["id"]
        await ended(server.served, run)
        task = await task_of(server.served, run, 1)
        paths = [f"/v1/tasks/{task}/{verb}" for verb in ("retry", "fork", "pause")]
        paths += [f"/v1/runs/{run}/resume", f"/v1/tasks/{run}/unpause"]
        refused = [await server.ask(reader, "POST", path) for path in paths]
        unseen = [await server.ask(other, "POST", path) for path in paths]
        team.mend()
        again = await server.ask(mine, "POST", paths[0])
        seen = await server.ask(other, "GET", f"/v1/runs/{again.json()['id']}")
        await ended(server.served, again.json()["id"])

    assert [it.status_code for it in refused] == [403] * 5
    assert [it.status_code for it in unseen] == [404] * 5
    assert (again.status_code, again.json()["owner"]) == (202, "mine")
    assert seen.status_code == 404


async def test_the_audit_records_retry_and_pause() -> None:
    team, journal = Team(fails=True), MemoryJournal()
    async with serving(team.agent, journal=journal) as served:
        run = await ended(served, (await started(served, "lead"))["id"])
        second = await task_of(served, run["id"], 1)
        team.mend()
        begun = (await act(served, f"/v1/tasks/{second}/retry")).json()["id"]
        await act(served, f"/v1/tasks/{begun}/pause")
        await ended(served, begun)
    rows = [(row.event.action, row.event.target) for row in journal.audit]

    assert ("retry_task", begun) in rows
    assert ("pause_task", begun) in rows
