"""The matrix of clients and features: read from a record, and written into `docs/http.md`.

A cell is ✓ if every check of that feature has passed, "✓ but" with a note if all have but those
that the client itself cannot pass, and ✗ with a note if another one has not. It is empty where
nothing was tried.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from tests.clients.environments import CLIENTS

HERE: Final = Path(__file__).parent
RECORD: Final = HERE / "recorded.json"
PAGE: Final = HERE.parent.parent / "docs" / "http.md"
BEGIN: Final = "<!-- the matrix of `make clients`: begin -->\n"
END: Final = "<!-- end -->\n"
FEATURES: Final[Mapping[str, str]] = {
    "plain": "plain answer, instructions",
    "stream": "stream",
    "usage": "usage, also of streams",
    "tools": "tools of the client",
    "parallel calls": "several calls in one answer",
    "streamed calls": "calls in streams",
    "tool choice": "`tool_choice` none, auto, required, named",
    "one call at a time": "one call at a time",
    "custom tools": "custom tools",
    "structured output": "structured output, every mode",
    "settings": "sampling and limits",
    "images and files": "images and files",
    "several turns": "several turns",
    "previous_response_id": "`previous_response_id`",
    "background": "background",
    "conversation": "conversations",
    "reasoning": "reasoning",
    "completions": "`/v1/completions`",
    "n": "`n`",
    "logprobs": "`logprobs`: named in `x-ignored-parameters`",
    "stored chats": "stored chats",
    "count_tokens": "`count_tokens`",
    "auth headers": "`x-api-key`, and `Authorization: Bearer`",
    "errors": "errors as its own classes",
    "idempotency": "`Idempotency-Key`",
    "cancel": "an abort cancels the run",
    "subagents": "the tree as subagents, with failed ones",
    "state": "shared state",
    "approvals": "approvals as interrupts",
    "reconnection": "a stream that continues",
    "stop": "a run that is stopped elsewhere",
}
"""The subjects of checks, and their names in the matrix."""


class Check(msgspec.Struct, frozen=True):
    """One check of a client, and how it went."""

    feature: str
    check: str
    error: str = ""
    """The reason, if it failed."""
    fails: str = ""
    """Why it has to fail: the client itself cannot do it."""

    @property
    def works(self) -> bool:
        return not self.error

    @property
    def is_expected(self) -> bool:
        return self.works == (not self.fails)


class Trial(msgspec.Struct, frozen=True):
    """The result of one client."""

    versions: Mapping[str, str]
    checks: Sequence[Check]

    def agrees_with(self, other: "Trial | None") -> bool:
        """Return whether the same checks work, of the same versions."""
        if other is None or self.versions != other.versions:
            return False
        mine, theirs = (
            [(it.feature, it.check, it.works) for it in trial.checks] for trial in (self, other)
        )
        return mine == theirs

    @property
    def surprises(self) -> list[Check]:
        return [check for check in self.checks if not check.is_expected]


Record = Mapping[str, Trial]


def read_record() -> dict[str, Trial]:
    return msgspec.json.decode(RECORD.read_bytes(), type=dict[str, Trial])


def write_record(record: Record) -> None:
    """Write the record, and its tables into the page."""
    text = json.dumps(msgspec.to_builtins(record), indent=1, ensure_ascii=False)
    RECORD.write_text(f"{text}\n")
    PAGE.write_text(_replaced(PAGE.read_text(), tables(record)))


def tables_of_page() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _replaced(page: str, new: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} has no place for the matrix: {BEGIN}")
    return f"{before}{begin}{new}{end}{after}"


def tables(record: Record) -> str:
    """Return the matrix of each protocol."""
    made: list[str] = []
    for protocol in dict.fromkeys(it.protocol for it in CLIENTS):
        titles = [it.title for it in CLIENTS if it.protocol == protocol and it.title in record]
        shown = table({title: record[title] for title in titles})
        made.append(f"Clients of {protocol}'s protocol:\n\n{shown}")
    return "\n".join(made)


def table(record: Record) -> str:
    """Return the matrix in Markdown, with the notes of what fails below it."""
    notes = _Notes()
    rows = [["", *record], ["---"] * (len(record) + 1)]
    versions = [next(iter(trial.versions.values())) for trial in record.values()]
    rows.append(["version", *versions])
    for feature, called in FEATURES.items():
        cells = [_cell(trial, feature, title, notes) for title, trial in record.items()]
        if any(cells):
            rows.append([called, *cells])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *notes.lines()]) + "\n"


def _cell(trial: Trial, feature: str, title: str, notes: "_Notes") -> str:
    checks = [check for check in trial.checks if check.feature == feature]
    failed = [check for check in checks if not check.works]
    if not failed:
        return "✓" if checks else ""
    numbers = sorted({notes.add(title, check) for check in failed})
    mark = "✓ but" if all(check.is_expected for check in failed) else "✗"
    return f"{mark} {', '.join(map(str, numbers))}"


@attrs.define
class _Notes:
    """The notes below the matrix, each with its number."""

    _texts: dict[str, int] = attrs.field(factory=dict[str, int])

    def add(self, title: str, check: Check) -> int:
        why = check.fails or f"fails: {_in_one_cell(check.error)}"
        text = f"{title}, *{check.check}*: {why}"
        return self._texts.setdefault(text, len(self._texts) + 1)

    def lines(self) -> Iterable[str]:
        return [f"{number}. {text}." for text, number in self._texts.items()]


def _in_one_cell(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:160]


def read_lines(output: bytes) -> Trial:
    """Return the trial that a program has printed, a line for each check."""
    versions: dict[str, str] = {}
    checks: list[Check] = []
    for line in output.splitlines():
        row: dict[str, Any] = json.loads(line)
        if "versions" in row:
            versions = row["versions"]
        else:
            row.pop("seconds")
            checks.append(Check(**row))
    return Trial(versions, checks)
