"""The official suite: which scenarios there are, and what it says of us in one of them."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import attrs
import trio
import yaml

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent.parent
PACKAGES: Final = HERE / "node_modules"
SUITE: Final = PACKAGES / "@modelcontextprotocol" / "conformance"
REVISIONS: Final = ("2025-11-25", "2026-07-28")
CLIENT: Final = f"{sys.executable} -m tests.mcp.conformance.client"
SCENARIO_SECONDS: Final = 90
BAD: Final = frozenset({"FAILURE", "WARNING"})
"""A warning is about what an implementation should do, so it has to be listed, too."""

Side = Literal["server", "client"]


@attrs.frozen(order=True)
class Scenario:
    """A scenario in one revision of the protocol."""

    side: Side
    revision: str
    name: str
    is_extension: bool = attrs.field(default=False, order=False)
    """No part of a revision: the suite knows by itself in which one it runs."""

    def __str__(self) -> str:
        return f"{self.side} {self.revision} {self.name}"


@attrs.frozen
class Verdict:
    """The suite's verdict on a scenario."""

    scenario: Scenario
    good: int
    """How many checks passed."""
    bad: dict[str, str]
    """Why checks failed, by their ids."""
    skipped: int = 0
    """How many checks the suite itself left out."""

    @property
    def has_passed(self) -> bool:
        return self.good > 0 and not self.bad


def node() -> str:
    """Return the node of our packages, or that of the machine where they have none."""
    ours = PACKAGES / ".bin" / "node"
    return str(ours) if ours.exists() else which("node") or "node"


def scenarios() -> list[Scenario]:
    """Return all scenarios of both revisions, the required ones and the others.

    Extensions are no part of a revision: each of their scenarios is there once.
    """
    found: dict[tuple[str, str, str], Scenario] = {}
    for revision in REVISIONS:
        text = (SUITE / "requirements" / f"{revision}.yaml").read_text()
        listed: dict[str, Any] = yaml.safe_load(text)
        sides: tuple[Side, ...] = ("server", "client")
        for side in sides:
            for name in listed[side]:
                found[side, revision, name] = Scenario(side, revision, name)
            for it in listed["not_scored"]:
                if it["leg"] == side:
                    name, is_extension = it["scenario"], it["reason"] == "extension"
                    key = (side, "" if is_extension else revision, name)
                    found[key] = Scenario(side, revision, name, is_extension)
    return list(found.values())


async def judge(scenario: Scenario, url: str | None = None) -> Verdict:
    """Let the suite judge us in one scenario.

    Args:
        scenario: which.
        url: the server that it judges, if it judges one.
    """
    target = ["--command", CLIENT] if url is None else ["--url", url]
    if not scenario.is_extension:
        target += ["--spec-version", scenario.revision]
    with TemporaryDirectory() as folder:
        done = await run_node(
            SUITE / "dist" / "index.js",
            scenario.side,
            *target,
            *("--scenario", scenario.name),
            *("--timeout", f"{SCENARIO_SECONDS * 1000}", "--output-dir", folder),
        )
        checks = _checks_in(Path(folder))
    if checks is None:
        said = (done.stdout + done.stderr).decode(errors="replace")
        return Verdict(scenario, 0, {"(no result)": said.strip()[-400:]})
    bad = {
        check["id"]: f"{check['status']}: {check.get('errorMessage') or check['description']}"
        for check in checks
        if check["status"] in BAD
    }
    statuses = [check["status"] for check in checks]
    if not bad and done.returncode != 0 and scenario.side == "client":
        said = done.stdout.decode(errors="replace")
        bad = {"(client)": f"the client failed: {said.strip()[-400:]}"}
    return Verdict(scenario, statuses.count("SUCCESS"), bad, statuses.count("SKIPPED"))


def _checks_in(folder: Path) -> list[dict[str, Any]] | None:
    # Results of the scenario a/b are in a folder inside a folder.
    found = [json.loads(it.read_text()) for it in folder.rglob("checks.json")]
    return found[0] if len(found) == 1 else None


async def run_node(
    *arguments: str | Path, environ: Sequence[tuple[str, str]] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run a program with node, in the root of the repository."""
    path = f"{PACKAGES / '.bin'}{os.pathsep}{os.environ['PATH']}"
    with trio.move_on_after(2 * SCENARIO_SECONDS):
        return await trio.run_process(
            [node(), *map(str, arguments)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "PATH": path, **dict(environ)},
            deliver_cancel=_kill,
        )
    return subprocess.CompletedProcess([], 1, b"", b"it took too long")


async def _kill(process: trio.Process) -> None:
    await trio.lowlevel.checkpoint()
    process.kill()
