"""Log records name their session, task and trace, have no secrets, and are quiet by default."""

import json
import logging
import subprocess
import sys
from collections.abc import Generator
from io import StringIO

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool
from orchestrator.cli.app import run_command
from orchestrator.loggers import logger_of
from orchestrator.products.telemetry.session_spans import SessionSpans
from orchestrator.telemetry import JsonLines
from tests.kit import editor, hand_on, worker

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(name="lines")
def json_lines() -> Generator[StringIO]:
    """Write the records of all loggers as lines of JSON."""
    written, top = StringIO(), logging.getLogger()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    top.addHandler(handler)
    logging.getLogger("orchestrator").setLevel(logging.INFO)
    yield written
    logging.getLogger("orchestrator").setLevel(logging.NOTSET)
    top.removeHandler(handler)


def read(lines: StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


async def test_each_record_of_a_run_names_its_task_and_its_trace(lines: StringIO) -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        run = await orchestrator.run(
            editor(hand_on("look"), "done", delegates=[worker("finder")]), "go"
        )
    builder = SessionSpans(run.id)
    (trace,) = {span.ids.trace for it in journal.entries for span in builder.add(it)}

    records = read(lines)
    assert [it["message"] for it in records] == [
        "/editor started turn 1",
        "/editor/finder[1] was requested, joined",
        "/editor/finder[1] ended: it succeeded",
        "/editor ended: turn 1 succeeded",
    ]
    assert {it["trace_id"] for it in records} == {f"{trace:032x}"}
    assert {it["session"] for it in records} == {run.id}
    assert [it["agent"] for it in records] == ["editor", "finder", "finder", "editor"]
    assert [it["path"] for it in records][1] == "/editor/finder[1]"


async def test_a_failed_task_is_a_warning_without_its_secret(lines: StringIO) -> None:
    @tool
    async def look() -> str:
        """Look."""
        await trio.lowlevel.checkpoint()
        logging.getLogger("a tool").warning("the key is %s", SECRET)
        raise RuntimeError(f"cannot use {SECRET}")

    model = ScriptedModel.always(ToolCall("look"))
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(Agent("finder", model=model, tools=[look]), "go")

    assert not run.outcome.succeeded
    of_tool, failed = [it for it in read(lines) if it["level"] == "warning"]
    assert (of_tool["session"], of_tool["task"]) == (run.id, run.id)
    assert failed["message"].startswith("/finder ended: turn 1 failed: RuntimeError: cannot use")
    assert SECRET not in lines.getvalue()


async def test_a_handler_that_fails_ends_no_run() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ValueError("a fault of the handler")

    log, handler = logger_of("runs"), Broken(logging.INFO)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        async with open_orchestrator(":memory:") as orchestrator:
            run = await orchestrator.run(worker(), "go")
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)

    assert run.output == "done"


def test_a_library_is_quiet_and_a_command_shows_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "from orchestrator.loggers import logger_of; logger_of('server').warning('careful')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert ran.stderr == b""

    def warn(_: object) -> int:
        logger_of("server").warning("careful")
        logger_of("runs").info("a run")
        return 0

    monkeypatch.setattr("orchestrator.cli.app._run_or_help", warn)
    run_command([])
    assert capsys.readouterr().err == "orchestrator: careful\n"
    monkeypatch.setenv("ORCHESTRATOR_LOG", "json")
    run_command([])
    records = [json.loads(it) for it in capsys.readouterr().err.splitlines()]
    assert [it["message"] for it in records] == ["careful", "a run"]
    run_command([])
    logger_of("server").warning("nobody reads this")
    assert "nobody" not in capsys.readouterr().err


def test_a_traceback_is_one_line_of_json() -> None:
    with pytest.raises(ValueError, match="cannot use") as raised:
        raise ValueError(f"cannot use {SECRET}")
    error = (raised.type, raised.value, raised.tb)
    record = logging.LogRecord("a", logging.ERROR, "", 1, "it failed", (), error)
    line = JsonLines().format(record)

    assert "\n" not in line
    assert "ValueError: cannot use" in json.loads(line)["error"]
    assert SECRET not in line
