"""Trust in agent files: a person reads their effects once, before they are used.

The answer holds for the folder and the digest of the effects, so a changed effect is asked about
again. A Python file is code that the user starts, and is not asked about.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from orchestrator.cli.errors import CommandError
from orchestrator.cli.terminal.approvals import is_attended
from orchestrator.delegation import printable
from orchestrator.ports.files import PrivateFile, state_folder

if TYPE_CHECKING:
    from orchestrator.products.agent_files.effects import Effects

TRUSTED_FILES: Final = "trusted_files"
"""The file in the state folder with the effects that a person has agreed to."""
MOST_KEPT: Final = 1_000

TrustOption = Annotated[
    bool,
    Parameter(
        help="Use agent files (*.md, team.yaml, .mcp.json) that start programs, send variables or"
        " ask no questions, without asking whether you trust them."
    ),
]


def require_trust(file: Path, effects: "Effects", *, trust: bool) -> None:
    """Ask once whether files with these effects are trusted; raise if they are not."""
    if trust or not effects.lines:
        return
    folder = os.path.realpath(file if file.is_dir() else file.parent)
    entry = f"{effects.digest} {folder}"
    trusted = PrivateFile(state_folder(os.environ) / TRUSTED_FILES, error=CommandError)
    if entry in _read(trusted):
        return
    if not is_attended():
        raise CommandError(
            f"{file} is not trusted yet: it {'; '.join(effects.lines)}. There is no terminal to ask"
            " you at: read the file, and then give --trust, or run this once in a terminal"
        )
    lines = "".join(f"\n  - {_one_line(line)}" for line in effects.lines)
    print(
        f"Do you trust {_one_line(str(file))}? It does this without asking again:{lines}",
        file=sys.stderr,
    )
    print("yes or no: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError(f"{file} is not trusted, so nothing was started")
    with trusted.locked():
        kept = [it for it in _read(trusted) if it != entry][-MOST_KEPT:]
        trusted.replace(msgspec.json.encode([*kept, entry]))


def _read(trusted: PrivateFile) -> list[str]:
    try:
        return msgspec.json.decode(trusted.read() or b"[]", type=list[str])
    except msgspec.DecodeError as exc:
        raise CommandError(f"{trusted.path} is damaged: remove it") from exc


def _one_line(text: str) -> str:
    return " ".join(printable(text).split("\n"))
