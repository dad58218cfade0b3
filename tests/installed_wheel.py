"""Installs the wheel in an empty environment and uses it there: `make wheel`.

Requirements come by their hashes. The first program of the README runs after every step: alone,
beside openai-agents, in a project with an `agents/` folder, from the sdist and from an editable
install. It tries this Python; `--all` tries every Python from 3.11 to 3.14 on the machine.
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

import attrs

ROOT: Final = Path(__file__).parent.parent
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
OURS: Final = "delegation-orchestrator"
THEIRS: Final = "openai-agents"
PROGRAM: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEIGHBOUR: Final = """
from importlib.metadata import files
import agents

assert any(it.locate().samefile(agents.__file__) for it in files("openai-agents")), agents.__file__
print(agents.Agent(name="theirs").name, agents.Runner.__name__)
"""
"""A program of openai-agents: its package `agents` is its own, and works."""

USER_PROJECT: Final = {
    "agents/__init__.py": "from agents.writer import MODEL\n",
    "agents/writer.py": (
        "from orchestrator import ScriptedModel\nMODEL = ScriptedModel.always('A draft.')\n"
    ),
    "delegation.py": "GOAL = 'Write.'\n",
    "main.py": (
        "from agents import MODEL\n"
        "from delegation import GOAL\n"
        "from orchestrator import Agent, run_sync\n\n"
        "writer = Agent('writer', model=MODEL)\n\n"
        "if __name__ == '__main__':\n"
        "    print(run_sync(writer, GOAL).output)\n"
    ),
}
"""The files of a project whose own modules have the names of our folders."""


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Run a command and return its output; exit with the output if the command fails."""
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
    """Yield the version and the path of each Python on this machine."""
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
    """Return the version of a Python, or nothing if it does not start (a pyenv shim)."""
    say = "import sys; print(*sys.version_info[:2], sep='.')"
    done = subprocess.run([python, "-c", say], capture_output=True, text=True, check=False)
    return done.stdout.strip()


@attrs.frozen
class Environment:
    """A virtual environment in a folder where nothing of the repository is."""

    home: Path
    """The folder of the environment, and the current folder of every program."""

    python: str
    """The interpreter that makes the environment."""

    def make(self) -> None:
        self.home.mkdir()
        run(self.python, "-m", "venv", self.home / "env", cwd=self.home)

    def pip(self, command: str, *arguments: str | Path) -> None:
        """Run pip with the settings of this machine, such as its registry and its cache."""
        settings = {name: it for name, it in os.environ.items() if name.startswith("PIP_")}
        cache = run(sys.executable, "-m", "pip", "cache", "dir", cwd=ROOT, HOME=str(Path.home()))
        settings.setdefault("PIP_CACHE_DIR", cache.strip())
        quiet = ("--quiet", "--disable-pip-version-check")
        self.run("python", "-m", "pip", *quiet, command, *arguments, **settings)

    def install_pinned(self, requirements: str) -> None:
        file = ROOT / "requirements" / f"{requirements}.txt"
        self.pip("install", "--require-hashes", "-r", file)

    def install_ours(self, *source: str | Path) -> None:
        """Install a wheel, an sdist or a checkout. Its requirements are there already."""
        offline = ("--no-deps", "--no-index", "--no-build-isolation")
        self.pip("install", *offline, "--force-reinstall", *source)

    def uninstall(self, name: str) -> None:
        self.pip("uninstall", "--yes", name)

    def run(self, command: str, *arguments: str | Path, **environ: str) -> str:
        state = str(self.home / "state")
        program = self.home / "env" / "bin" / command
        return run(program, *arguments, cwd=self.home, ORCHESTRATOR_HOME=state, **environ)

    def run_ours(self, *, before: str = "") -> None:
        """Run the first program of the README, where every warning is an error."""
        program = PROGRAM.search((ROOT / "README.md").read_text())
        assert program is not None
        said = self.run("python", "-W", "error", "-c", before + program[1])
        assert said == "A brief.\n", said

    def run_theirs(self) -> None:
        """Run a program of openai-agents."""
        said = self.run("python", "-c", NEIGHBOUR)
        assert said == "theirs Runner\n", said


def try_commands(env: Environment) -> None:
    """Use the first commands of a user."""
    version = env.run("orchestrator", "--version")
    assert env.run(OURS, "--version") == version
    env.run(OURS, "demo", "--seconds", "0")
    assert "Trios" in env.run("orchestrator", "runs")
    report = env.home / env.run("orchestrator", "report").strip()
    assert report.read_text().startswith("<!doctype html>")
    print(f"{env.python}: {version.strip()} answers, and writes reports")


def try_neighbour(env: Environment, wheel: Path) -> None:
    """Share the environment with openai-agents: in both orders, and after either one left."""
    env.install_pinned("neighbours")
    env.run_ours(before="import agents\n")
    env.run_theirs()
    env.uninstall(OURS)
    env.run_theirs()
    env.install_ours(wheel)
    env.run_ours(before="import agents\n")
    env.run_theirs()
    env.uninstall(THEIRS)
    env.run_ours()
    print(f"{env.python}: {OURS} and {THEIRS} share an environment")


def try_user_project(env: Environment) -> None:
    """Run a project whose own modules are called `agents` and `delegation`."""
    project = env.home / "project"
    for name, text in USER_PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    main = project / "main.py"
    assert env.run("python", "-W", "error", main) == "A draft.\n"
    assert env.run("orchestrator", "run", main, "Write.", "--quiet") == "A draft.\n"
    print(f"{env.python}: a project with an agents/ folder of its own runs")


def try_other_installs(env: Environment, sdist: Path) -> None:
    """Install from the sdist, then editable from this checkout."""
    for kind, source in (("sdist", [sdist]), ("editable", ["--editable", ROOT])):
        env.uninstall(OURS)
        env.install_ours(*source)
        env.run_ours()
        print(f"{env.python}: the {kind} install runs the first program")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        build = [sys.executable, "-m", "build", "--no-isolation"]
        subprocess.run([*build, "--outdir", folder, str(ROOT)], check=True, capture_output=True)
        (wheel,) = home.glob("*.whl")
        (sdist,) = home.glob("*.tar.gz")
        found = interpreters() if "--all" in sys.argv else [("this", sys.executable)]
        for version, path in found:
            env = Environment(home / version, path)
            env.make()
            env.install_pinned("run")
            env.install_ours(wheel)
            env.run_ours()
            try_commands(env)
            try_user_project(env)
            try_neighbour(env, wheel)
            try_other_installs(env, sdist)


if __name__ == "__main__":
    main()
