"""The text of a file that defines agents: short, and UTF-8."""

from pathlib import Path
from typing import Final

from orchestrator.products.agent_files.located import AgentFileError

LONGEST: Final = 1_000_000


def read_text(file: Path) -> str:
    """Return the text of a file, with the line ends of Unix."""
    if not file.is_file():
        raise AgentFileError(file, 0, "there is no such file")
    with file.open("rb") as opened:
        data = opened.read(LONGEST + 1)
    if len(data) > LONGEST:
        raise AgentFileError(
            file, 0, f"it has more than {LONGEST:,} bytes: an agent is read with each call"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise AgentFileError(file, line, "it is not UTF-8: save it as UTF-8") from exc
    return text.replace("\r\n", "\n")
