"""Type checkers accept what is right, and refuse what is wrong: `joins.py` and its siblings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def files() -> list[Path]:
    return [HERE / f"{it}.py" for it in ("joins", "outputs", "deps", "states", "trees", "ways_in")]


def refused() -> int:
    """Return how many lines say that they must be refused."""
    return sum(file.read_text().count("# pyright: ignore") for file in files())


def test_mypy_agrees() -> None:
    """Each line that must be refused has a comment, and one that is not needed is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, files())],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert refused() >= 20


def test_pyright_agrees() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(HERE), "--outputjson"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {done.stdout}{done.stderr}")
    report = json.loads(done.stdout)

    assert report["generalDiagnostics"] == []
    assert report["summary"]["filesAnalyzed"] >= len(files())
