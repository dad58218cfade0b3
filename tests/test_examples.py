"""Examples cannot rot: each one runs, without a warning, and prints what it says it prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name
)
def test_an_example_prints_what_it_says(file: Path, tmp_path: Path) -> None:
    _, marker, expected = file.read_text().partition("\n# prints:\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "ORCHESTRATOR_HOME": str(tmp_path)},
        timeout=60,
        check=False,
    )

    assert marker
    assert done.stderr == ""
    assert done.stdout == "".join(
        f"{line.removeprefix('# ')}\n" for line in expected.splitlines()
    )


def test_the_guide_names_every_example() -> None:
    guide = (EXAMPLES / "README.md").read_text()

    assert [file.name for file in EXAMPLES.glob("*.py") if file.name not in guide] == []
