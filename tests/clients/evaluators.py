"""`python -m tests.clients.evaluators`: try autoevals, inspect_ai and promptfoo with our agents.

The files come from `docs/evaluation.md`. The Python tools have an environment of their own, with
pinned versions; npm fetches promptfoo, which has two thousand packages.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import trio

from tests.clients.environments import Client, node, prepare
from tests.server.server_process import ROOT, server_process

PAGE: Final = ROOT / "docs" / "evaluation.md"
TOOLS: Final = Client("autoevals and inspect_ai", "evaluators", "evaluators.py")
PROMPTFOO: Final = "promptfoo@0.121.20"
PATIENCE: Final = 1800
"""The seconds for one tool: npm fetches 1.9 GB at first."""
SCORERS: Final = """
from autoevals import ExactMatch, Levenshtein, NumericDiff

scorers = [Levenshtein(), ExactMatch]
numeric = [NumericDiff()]
"""
NUMBERS: Final = """
from orchestrator import Agent, ScriptedModel

team = Agent("counter", model=ScriptedModel.always(lambda said: said[-1].text), output=float)
"""


def example(begin: str) -> str:
    """Return the block of the page that begins with these words."""
    found = re.search(rf"```\w+\n({re.escape(begin)}.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, begin
    return found[1]


async def run(command: list[str], folder: Path, **environ: str) -> str:
    """Run a tool, and return its output."""
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            command,
            cwd=folder,
            env={**os.environ, "PATH": f"{Path(node()[0]).parent}:/usr/bin:/bin", **environ},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    if done.returncode:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise RuntimeError(f"{' '.join(command[:4])} ended with {done.returncode}: {said[-3000:]}")
    return done.stdout.decode()


async def try_python_tools(folder: Path) -> None:
    """Score runs with autoevals, and run an agent in inspect_ai."""
    python, _ = await prepare(TOOLS)
    # Only our package is on the path: `agents` is a name that others use, too.
    (folder / "orchestrator").symlink_to(ROOT / "orchestrator")
    (folder / "scorers.py").write_text(SCORERS)
    (folder / "counter.py").write_text(NUMBERS)
    (folder / "counter.jsonl").write_text('{"inputs": "4.5", "expected_output": 5}\n')
    (folder / "capitals.py").write_text(example("from inspect_ai import"))
    environ = {"PYTHONPATH": str(folder), "HOME": str(folder)}
    command = [python, "-m", "orchestrator", "eval", "--json"]

    text = [*command, "team.py", "cases.yaml", "--scorer", "scorers.py"]
    [version] = json.loads(await run(text, folder, **environ))["versions"]
    expect("autoevals, texts", 0 < version["score"] < 1 and not version["errors"])
    typed = [*command, "counter.py", "counter.jsonl", "--scorer", "scorers.py:numeric"]
    [version] = json.loads(await run(typed, folder, **environ))["versions"]
    expect("autoevals, typed outputs", 0.8 < version["score"] < 1 and not version["errors"])

    inspect = [str(Path(python).parent / "inspect"), "eval", "capitals.py"]
    inspect += ["--model", "mockllm/model", "--log-format", "json", "--log-dir", "logs"]
    await run([*inspect, "--display", "none"], folder, **environ)
    [log] = (folder / "logs").glob("*.json")
    [score] = json.loads(log.read_text())["results"]["scores"]
    expect("inspect_ai", score["metrics"]["accuracy"]["value"] == 1)
    expect("inspect_ai, a run in the journal", (folder / "runs" / "journal.db").exists())


async def try_promptfoo(folder: Path) -> None:
    """Let promptfoo ask an agent of a real server."""
    async with server_process(folder, example("from orchestrator import Agent, Scr")) as server:
        config = example('prompts: ["{{country}}"]')
        ours = config.replace("http://127.0.0.1:8642", server.url)
        assert ours != config
        (folder / "promptfooconfig.yaml").write_text(ours)
        command = [*node(), "exec", "--yes", "--ignore-scripts", "--", PROMPTFOO, "eval"]
        await run(
            [*command, "--no-cache", "--no-write", "--output", "result.json"],
            folder,
            PROMPTFOO_CONFIG_DIR=str(folder / "promptfoo"),
            ORCHESTRATOR_API_KEY=server.token,
            PROMPTFOO_DISABLE_TELEMETRY="1",
            PROMPTFOO_DISABLE_UPDATE="1",
        )
    stats: Mapping[str, Any] = json.loads((folder / "result.json").read_text())["results"]["stats"]
    expect("promptfoo", (stats["successes"], stats["failures"], stats["errors"]) == (2, 0, 0))


def expect(name: str, holds: bool) -> None:
    """Print a check that holds; exit otherwise."""
    if not holds:
        sys.exit(f"✗ {name}")
    print(f"✓ {name}", flush=True)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="evaluators-") as made:
        folder = Path(made)
        (folder / "team.py").write_text(example("from orchestrator import Agent, Scr"))
        (folder / "cases.yaml").write_text(example("name: capitals"))
        await try_python_tools(folder)
        served = folder / "served"
        served.mkdir(mode=0o700)
        await try_promptfoo(served)


if __name__ == "__main__":
    trio.run(main)
