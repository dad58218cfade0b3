"""Installs the wheel where nothing of the repository is, and uses it: `make wheel`.

An empty environment, what the wheel needs by its hashes, the first program of the README, and the
first commands of a user: with this Python, or `--all` from 3.11 to 3.14 that the machine has.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
PIP: Final = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
PROGRAM: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Run a command, and return what it prints; with what it says if it fails."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def interpreters() -> Iterator[tuple[str, str]]:
    """Yield the Pythons that there are here: version and path."""
    for version in VERSIONS:
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates = [
            *filter(None, [shutil.which(f"python{version}")]),
            *map(str, pyenv.glob(f"{version}.*/bin/python")),
        ]
        found = next(filter(lambda it: _version_of(it) == version, candidates), None)
        if found is not None:
            yield version, found


def _version_of(python: str) -> str:
    """Return the version of a Python; empty if it does not start, as a shim that leads nowhere."""
    say = "import sys; print(*sys.version_info[:2], sep='.')"
    done = subprocess.run([python, "-c", say], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
        subprocess.run([*build, "--outdir", folder, str(ROOT)], check=True, capture_output=True)
        (wheel,) = home.glob("*.whl")
        found = interpreters() if "--all" in sys.argv else [("this", sys.executable)]
        for version, path in found:
            try_out(wheel, home / version, path)


def try_out(wheel: Path, home: Path, python: str) -> None:
    """Install the wheel with one Python, and use it."""
    home.mkdir()
    run(python, "-m", "venv", home / "env", cwd=home)
    installed = home / "env" / "bin" / "python"
    # The settings of the machine, such as its registry, and no others.
    settings = {name: it for name, it in os.environ.items() if name.startswith("PIP_")}
    needs = ROOT / "requirements" / "run.txt"
    run(installed, *PIP, "--require-hashes", "-r", needs, cwd=home, **settings)
    run(installed, *PIP, "--no-deps", "--no-index", wheel, cwd=home)

    program = PROGRAM.search((ROOT / "README.md").read_text())
    assert program is not None
    state = {"ORCHESTRATOR_HOME": str(home / "state")}
    assert run(installed, "-W", "error", "-c", program[1], cwd=home, **state) == "A brief.\n"
    command = home / "env" / "bin" / "orchestrator"
    version = run(command, "--version", cwd=home, **state).strip()
    run(command, "demo", "--seconds", "0", cwd=home, **state)
    assert "Trios" in run(command, "runs", cwd=home, **state)
    report = home / run(command, "report", cwd=home, **state).strip()
    assert report.read_text().startswith("<!doctype html>")
    print(f"{python}: {version} answers, and writes reports")


if __name__ == "__main__":
    main()
