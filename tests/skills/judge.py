"""`python -m tests.skills.judge`: compare our verdicts about skills with `skills-ref` from PyPI.

It installs the reference library into an environment of its own.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

from tests.skills.cases import CASES

PINS: Final = Path(__file__).parents[1] / "clients/pins/skills-ref.txt"


def main() -> int:
    """Print each case about which the two disagree, and the counts."""
    surprises: list[str] = []
    with tempfile.TemporaryDirectory(prefix="skills-ref-") as top:
        program = _installed(Path(top, "venv"))
        skills = Path(top, "skills")
        skills.mkdir()
        for case in CASES:
            folder = case.write(skills)
            command: list[Path | str] = [program, "validate", folder]
            accepts = subprocess.run(command, capture_output=True, check=False).returncode == 0
            agrees = accepts is not bool(case.problem)
            if agrees is bool(case.differs):
                surprises.append(f"{case.folder}: skills-ref {'accepts' if accepts else 'refuses'}")
    print(f"skills-ref: {len(CASES) - len(surprises)} of {len(CASES)} verdicts as recorded")
    print(*surprises, sep="\n", end="\n" if surprises else "")
    return bool(surprises)


def _installed(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"]
    subprocess.run([folder / "bin/python", *install, PINS], check=True)
    return folder / "bin/agentskills"


if __name__ == "__main__":
    sys.exit(main())
