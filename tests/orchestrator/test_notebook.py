"""A real Jupyter kernel runs the notebook of the examples, and one that uses trio itself."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "notebook.ipynb"
SAFETY = 300

RunNotebook: TypeAlias = Callable[[Path], list[list[Any]]]


@pytest.fixture
def run_notebook(tmp_path: Path) -> RunNotebook:
    """Run a notebook, and return the outputs of its cells."""
    folders = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")
    environ = {**os.environ, **{it: str(tmp_path / it.lower()) for it in folders}}

    def run(file: Path) -> list[list[Any]]:
        program = [sys.executable, str(ROOT / "tests" / "run_notebook.py")]
        done = subprocess.run(
            [*program, str(file), str(tmp_path)],
            capture_output=True,
            text=True,
            env=environ,
            timeout=SAFETY,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        cells = json.loads(done.stdout)["cells"]
        return [it["outputs"] for it in cells if it["cell_type"] == "code"]

    return run


def written(file: Path, cells: Sequence[str]) -> Path:
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    file.write_text(json.dumps(notebook))
    return file


def text_of(output: Any) -> str:
    return "".join(output["text"])


def data(output: Any) -> dict[str, str]:
    return {kind: "".join(text) for kind, text in output["data"].items()}


def test_the_notebook_of_the_examples_runs(run_notebook: RunNotebook) -> None:
    """The orchestrator and the session live across cells, and everything shows itself."""
    outputs = run_notebook(EXAMPLE)
    [_, _, [run], [tree], [streamed, *printed], [reply], [session], []] = outputs

    assert "It is settled." in data(run)["text/html"]
    assert '<iframe sandbox="allow-scripts' in data(run)["text/html"]
    assert re.fullmatch(r"<Run r_\w+ of editor: succeeded, 3 tasks>", data(run)["text/plain"])
    assert data(tree)["image/svg+xml"].startswith("<svg")
    # The picture of what went on has become the viewer of what has ended.
    assert "<iframe" in data(streamed)["text/html"]
    assert "<iframe" in data(session)["text/html"]
    said = "".join(map(text_of, printed)).splitlines()
    assert said[0] == "ToolCalled /editor"
    assert said[-1] == "TaskEnded /editor"
    assert text_of(reply) == "A trio is three of a kind.\n"


def test_a_picture_changes_while_a_run_goes_on_and_a_kernel_can_run_trio(
    run_notebook: RunNotebook, tmp_path: Path
) -> None:
    """Messages sent during the run are not stored, so the cell looks for itself.

    `%autoawait trio` gives each cell a loop of its own; without it a sentence says what to do.
    """
    cells = [
        PICTURES,
        FOLLOWED,
        WRONG_LOOP,
        "%autoawait trio",
        ON_TRIO,
        "%autoawait asyncio",
        SHOWN,
    ]
    outputs = run_notebook(written(tmp_path / "notebook.ipynb", cells))

    assert text_of(outputs[1][0]) == "True True\n"
    assert "from orchestrator.asyncio import open_orchestrator" in text_of(outputs[2][0])
    assert "<iframe" in data(outputs[4][0])["text/html"]
    assert "<iframe" in data(outputs[6][0])["text/html"]


PICTURES = """
import asyncio
import IPython.display
from orchestrator import *
from orchestrator.asyncio import open_orchestrator as open_on_asyncio, tool as asyncio_tool

gate, pictures = asyncio.Event(), asyncio.Queue()

class Handle:
    def update(self, bundle, raw):
        pictures.put_nowait(bundle)

def show(bundle, raw, display_id):
    pictures.put_nowait(bundle)
    return Handle()

shown, IPython.display.display = IPython.display.display, show

@asyncio_tool
async def wait() -> str:
    'Wait.'
    await gate.wait()
    return ''

waiter = Agent('a', model=ScriptedModel([ToolCall('wait', {}), 'ok']), tools=[wait])
"""
FOLLOWED = """
async with open_on_asyncio(':memory:') as orchestrator:
    async with orchestrator.stream(waiter, 'go') as run:
        run._ipython_display_()
        first = await pictures.get()
        gate.set()
        await run.wait()
        while 'succeeded' not in (await pictures.get())['image/svg+xml']:
            pass
    last = await pictures.get()
IPython.display.display = shown
print('running' in first['image/svg+xml'], '<iframe' in last['text/html'])
"""
SHOWN = """
async with open_on_asyncio(':memory:', progress='auto') as orchestrator:
    run = await orchestrator.run(Agent('a', model=ScriptedModel(['ok'])), 'go')
"""
WRONG_LOOP = """
try:
    async with open_orchestrator(':memory:') as orchestrator:
        pass
except WrongLoopError as exc:
    print(exc)
"""
ON_TRIO = """
async with open_orchestrator(':memory:') as orchestrator:
    run = await orchestrator.run(Agent('a', model=ScriptedModel(['ok'])), 'go')
run
"""
