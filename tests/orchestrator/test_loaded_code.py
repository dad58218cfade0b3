"""The code that a program loads: a delegation on SQLite imports no product and few modules."""

import json
import os
import subprocess
import sys
from pathlib import Path

LINES_AT_MOST = 28_000
PROGRAM = """
import json, sys, trio
from orchestrator import Agent, ScriptedModel, ToolCall, open_orchestrator

child = Agent("child", model=ScriptedModel.always("done"))
call = ToolCall("delegate_task", {"goal": "go"})
parent = Agent("parent", model=ScriptedModel([call, "done"]), delegates=[child])


def loaded():
    ours = {name: it for name, it in sys.modules.items() if name.split(".")[0] == "orchestrator"}
    return {name: getattr(it, "__file__", None) for name, it in ours.items()}


async def main():
    async with open_orchestrator(sys.argv[1]) as orchestrator:
        opened = loaded()
        run = await orchestrator.run(parent, "go")
        assert len(run.tree) == 2
    print(json.dumps({"opened": opened, "run": loaded()}))


trio.run(main)
"""


def loaded_by_a_delegation(tmp_path: Path) -> dict[str, dict[str, str | None]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "journal.db"],
        env={**os.environ, "ORCHESTRATOR_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    modules: dict[str, dict[str, str | None]] = json.loads(done.stdout)
    return modules


def test_delegation_on_sqlite_imports_no_product(tmp_path: Path) -> None:
    modules = loaded_by_a_delegation(tmp_path)["run"]

    assert [name for name in modules if name.startswith("orchestrator.products")] == []


def test_open_orchestrator_on_sqlite_loads_few_lines(tmp_path: Path) -> None:
    files = {it for it in loaded_by_a_delegation(tmp_path)["opened"].values() if it is not None}
    lines = sum(len(Path(file).read_text().splitlines()) for file in files)

    assert lines <= LINES_AT_MOST
