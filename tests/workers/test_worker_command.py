"""`orchestrator worker`: what is wrong is one sentence, and exit code 2."""

import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from orchestrator.cli.app import run_command
from orchestrator.products.cluster.work import Exchange
from orchestrator.products.cluster.work.shared_exchange import SharedExchange
from tests.workers.places import Places

TEAM = """
from orchestrator.agents import Agent, ScriptedModel, tool

@tool(place="gpu")
def render() -> str:
    "Render."
    return "x"

@tool(place="cpu")
def count() -> str:
    "Count."
    return "x"

painter = Agent("painter", model=ScriptedModel.always("x"), tools=[render{more}])
"""
NOWHERE = "postgresql://someone:hunter2secret@127.0.0.1:9/none"


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("ORCHESTRATOR_JOURNAL", raising=False)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path))
    file = tmp_path / "team.py"
    file.write_text(TEAM.replace("{more}", ", count"))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--journal", "journal.db"], "--journal postgresql://..., not journal.db"),
        ([], "--journal postgresql://..."),
        (["--journal", NOWHERE], "say which --place: cpu, gpu"),
        (["--journal", NOWHERE, "--place", "tpu"], "no agent or tool in .* has the place 'tpu'"),
        (["--journal", NOWHERE, "--place", "gpu", "--slots", "0"], "--slots is 0"),
        (["--journal", NOWHERE, "--place", "gpu", "--lease", "0"], "--lease is 0"),
        (["--journal", NOWHERE, "--place", "gpu"], "127.0.0.1:9/none"),
    ],
)
def test_a_worker_that_cannot_work_reports_the_reason(
    team: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["worker", team, *arguments]) == 2

    said = capsys.readouterr().err
    assert re.search(words, said), said
    assert said.count("\n") == 1
    assert "hunter2secret" not in said


def test_a_worker_refuses_a_file_without_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "team.py"
    file.write_text(TEAM.replace("{more}", "").replace('@tool(place="gpu")', "@tool"))

    assert run_command(["worker", str(file), "--journal", NOWHERE]) == 2
    assert "has a place, so there is nothing to run" in capsys.readouterr().err


async def test_the_journals_of_a_process_share_one_exchange() -> None:
    opened: list[Places] = []
    places = Places()

    def open_exchange() -> AbstractAsyncContextManager[Exchange]:
        opened.append(places)
        return places.open_exchange()

    shared = SharedExchange(open_exchange)
    async with shared.held():
        assert not opened, "none has lent anything yet"
        async with shared.open() as first, shared.open() as second:
            assert first is second
        async with shared.open():
            await trio.lowlevel.checkpoint()
    assert len(opened) == 1
