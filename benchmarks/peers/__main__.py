"""The cost of a delegation in other frameworks, relative to ours: `make bench-peers`.

Each framework is installed from PyPI into an environment of its own under `build/peers`. The
programs run in turn, several rounds, and the least CPU time of each counts: other processes only
ever add to it.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(__file__).with_name("programs")
ENVIRONMENTS: Final = ROOT / "build" / "peers"
OURS: Final = "delegation-orchestrator"
PEERS: Final = {
    OURS: "ours.py",
    "agno": "agno_agents.py",
    "autogen-agentchat": "autogen_agents.py",
    "agent-framework-core": "agent_framework_agents.py",
    "langgraph": "langgraph_graphs.py",
    "openai-agents": "openai_agents.py",
    "pydantic-ai-slim": "pydantic_ai_slim.py",
}


@attrs.define
class Measured:
    """The versions and CPU seconds of one framework."""

    version: str = ""
    seconds: dict[str, float] = attrs.Factory(dict[str, float])

    def add(self, found: dict[str, Any]) -> None:
        """Keep the least seconds of each workload."""
        self.version = found["version"]
        for workload, seconds in found["seconds"].items():
            self.seconds[workload] = min(seconds, self.seconds.get(workload, seconds))


def install(package: str) -> Path:
    """Install a framework if it is not there, and return the interpreter that has it."""
    if package == OURS:
        return Path(sys.executable)
    folder = ENVIRONMENTS / package
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        print(f"installing {package} into {folder.relative_to(ROOT)} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        folder.joinpath("installed").touch()
    return python


def measure(package: str, python: Path) -> dict[str, Any]:
    """Run the program of a framework once."""
    # The folder `agents` of this repository would hide the package of openai-agents.
    environ = {name: it for name, it in os.environ.items() if name != "PYTHONPATH"}
    if package == OURS:
        environ["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [python, PROGRAMS / PEERS[package]],
        check=True,
        stdout=subprocess.PIPE,
        env={**environ, "PYTHONHASHSEED": "0"},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def print_table(results: dict[str, Measured]) -> None:
    """Print the milliseconds of each framework, and their ratio to ours, as Markdown."""
    ours = results[OURS].seconds
    print("| framework | version | " + " | ".join(ours) + " |")
    print("|---" * (2 + len(ours)) + "|")
    for package, measured in results.items():
        cells = [
            f"{1_000 * seconds:,.2f} ms ({seconds / ours[workload]:.1f}×)"
            for workload, seconds in measured.seconds.items()
        ]
        print(f"| {package} | {measured.version} | " + " | ".join(cells) + " |")


def main() -> None:
    """Install the frameworks, measure them in turn, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    pythons = {package: install(package) for package in PEERS}
    results = {package: Measured() for package in PEERS}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}; load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        for package, python in pythons.items():
            results[package].add(measure(package, python))
    print_table(results)


if __name__ == "__main__":
    main()
