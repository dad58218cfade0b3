"""Progress where no picture can be drawn: lines that a log file can use, and facts as JSON."""

import io
import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio
from rich.console import Console

from orchestrator import MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, ModelError, ScriptedModel, ToolCall, Transcript, tool
from orchestrator.agents.approval import confirm
from orchestrator.cli.progress.log_lines import new_log, write_log
from orchestrator.delegation import Encoded, Rules, decode
from orchestrator.delegation.events import SessionOpened, TurnEnded
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from tests.kit import hand_on, worker


class EncodedOutput(io.StringIO):
    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


class Logged:
    """An orchestrator whose progress is written down."""

    def __init__(self, orchestrator: Orchestrator, output: EncodedOutput) -> None:
        self.orchestrator = orchestrator
        self._output = output

    @property
    def lines(self) -> list[str]:
        return self._output.getvalue().splitlines()


@asynccontextmanager
async def logged(encoding: str = "utf-8") -> AsyncGenerator[Logged]:
    output = EncodedOutput(encoding)
    console = Console(file=output, width=80)
    rules = Rules(children_per_call=1_000)
    async with open_orchestrator(MemoryJournal(), rules=rules) as orchestrator:
        with orchestrator.subscribe() as facts:
            log = new_log(orchestrator, console)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write_log, orchestrator, facts, log)
                yield Logged(orchestrator, output)
                nursery.cancel_scope.cancel()
            log.write([entry for entry, _ in facts.take()])
            log.write_failures()


async def test_every_change_of_a_few_tasks_is_a_line() -> None:
    helper = worker("helper", seconds=2)
    call = hand_on("a", agent="helper")
    boss = Agent("boss", model=ScriptedModel([call, "done"], 1), delegates=[helper])
    async with logged() as log:
        await log.orchestrator.run(boss, "go")

    assert log.lines == [
        "   0.0s ◐ /boss running",
        "   1.0s ◐ /boss/helper[1] running",
        "   3.0s ✓ /boss/helper[1] succeeded",
        "   4.0s ✓ /boss succeeded",
    ]


async def test_a_line_of_life_every_thirty_seconds() -> None:
    async with logged() as log:
        await log.orchestrator.run(worker(seconds=100), "go")

    beats = [line for line in log.lines if "last activity" in line]
    assert [line.split()[0] for line in beats] == ["30.0s", "1:00", "1:30"]
    assert beats[0].endswith("1 tasks: 1 running; 0 tokens, $0; last activity 30.0s ago")


def _fails_by_number(transcript: Transcript) -> str:
    if int(transcript[0].text) % 2:
        raise ModelError(f"HTTP 500 for {transcript[0].text}")
    return "done"


def crowd(size: int) -> Agent[str]:
    """Return an agent whose only child has very many children, of which every other one fails."""
    member = Agent("member", model=ScriptedModel.always(_fails_by_number))
    goals = [str(number) for number in range(size)]
    lead = Agent(
        "lead",
        model=ScriptedModel([hand_on(*goals, agent="member", background=False), "ok"]),
        delegates=[member],
    )
    return Agent(
        "boss",
        model=ScriptedModel([hand_on("all", agent="lead", background=False), "ok"]),
        delegates=[lead],
    )


async def test_a_crowd_does_not_flood_the_log() -> None:
    """The first 200, then the first level, 40 failures, and all that failed is counted."""
    async with logged() as log:
        await log.orchestrator.run(crowd(500), "go")

    text = "\n".join(log.lines)
    assert len(log.lines) < 500
    assert "more than 200 tasks: from here on only those of the first level" in text
    assert "40 tasks have failed: further ones are only counted" in text
    assert "✓ /boss/lead[1] succeeded" in text
    summary = log.lines.index("250 of 501 tasks failed:")
    assert "  /boss/lead[1]/member[" in log.lines[summary + 1]
    assert "HTTP 500 for " in log.lines[summary + 1]
    assert log.lines[-1] == "  … and 230 more"


async def test_a_task_that_needs_an_approval_is_always_printed() -> None:
    @tool
    def deploy() -> str:
        """Deploy it."""
        return "deployed"

    boss = Agent(
        "boss",
        model=ScriptedModel([ToolCall("deploy"), "done"]),
        tools=[deploy],
        approve=[confirm("deploy")],
    )
    async with logged() as log, trio.open_nursery() as nursery:

        async def approve() -> None:
            seen = 0
            while not log.orchestrator.approvals:
                seen = await log.orchestrator.wait_changed(after=seen)
            (asked,) = log.orchestrator.approvals
            await trio.sleep(5)
            await log.orchestrator.answer(asked.id, "once")

        nursery.start_soon(approve)
        await log.orchestrator.run(boss, "go", attended=True)

    text = "\n".join(log.lines)
    assert "! /boss waiting: deploy: {} (a_" in text
    assert "   5.0s ◐ /boss running: once" in text


async def test_a_terminal_without_utf_8_gets_ascii() -> None:
    async with logged("latin-1") as log:
        await log.orchestrator.run(worker(), "go")

    assert log.lines == ["   0.0s * /worker running", "   0.0s + /worker succeeded"]


TEAM = """
from orchestrator.agents import Agent, ScriptedModel, ToolCall

call = ToolCall("delegate_task", {"goal": "part " + "x" * 5000, "agent": "helper"})
helper = Agent("helper", model=ScriptedModel.always("found"))
editor = Agent("editor", model=ScriptedModel([call, "merged"]), delegates=[helper])
"""


def run(
    python: list[str], home: Path, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    (home / "team.py").write_text(TEAM)
    return subprocess.run(
        [*python, "-m", "orchestrator", "run", "team.py:editor", "go", *arguments],
        capture_output=True,
        text=True,
        cwd=home,
        env={**os.environ, "ORCHESTRATOR_HOME": str(home / "state"), **environ},
        timeout=60,
        check=True,
    )


@pytest.mark.realtime
async def test_json_progress_equals_the_journal(tmp_path: Path, python: list[str]) -> None:
    done = run(python, tmp_path, "--progress", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    stored = await read_sqlite_journal(tmp_path / "state" / "journal.db")

    printed = {
        line["seq"]: decode(
            Encoded(line["kind"], line["version"], msgspec.json.encode(line["body"]))
        )
        for line in lines
    }
    assert done.stderr == ""
    assert list(lines[0]) == ["seq", "at", "session", "kind", "version", "body"]
    assert printed == {it.seq: it.event for it in stored if it.seq >= min(printed)}
    assert isinstance(printed[min(printed)], SessionOpened)
    assert any(isinstance(event, TurnEnded) for event in printed.values())
    assert [line["at"] for line in lines] == [it.at for it in stored if it.seq in printed]


def test_quiet_progress_is_silent_and_colours_are_forced_or_forbidden(
    python: list[str], tmp_path: Path
) -> None:
    quiet = run(python, tmp_path, "--progress", "none")
    forced = run(python, tmp_path, FORCE_COLOR="1", NO_COLOR="")
    forbidden = run(python, tmp_path, NO_COLOR="1", FORCE_COLOR="")

    assert (quiet.stdout, quiet.stderr) == ("merged\n", "")
    assert "\x1b[" in forced.stderr
    assert "\x1b[?25l" not in forced.stderr  # no cursor is hidden in a file
    assert "\x1b" not in forbidden.stderr
    assert "✓ /editor succeeded" in forbidden.stderr
