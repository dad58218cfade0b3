"""The scenarios of the suite that we skip: the table of `docs/mcp.md`, with the reasons.

A row that is not needed is an error, so that the table is never longer than the truth.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from tests.mcp.conformance.suite import REVISIONS, ROOT, Scenario, Verdict

DOCUMENT: Final = ROOT / "docs" / "mcp.md"
HEADING: Final = "| side | scenario | why it does not apply |"
NAME: Final = re.compile(r"`([^`]+)`")


@attrs.frozen
class Row:
    """A row of the table: one scenario, or one check of it, in one revision or in both."""

    side: str
    revision: str
    """Empty is both."""
    scenario: str
    check: str
    """Empty is all of them."""
    reason: str

    def covers(self, scenario: Scenario) -> bool:
        return (
            self.side == scenario.side
            and self.scenario == scenario.name
            and self.revision in {"", scenario.revision}
        )


def rows(document: Path = DOCUMENT) -> list[Row]:
    """Return the rows of the table."""
    lines = document.read_text().splitlines()
    found: list[Row] = []
    for line in lines[lines.index(HEADING) + 2 :]:
        if not line.startswith("|"):
            break
        side, scenarios, reason = (it.strip() for it in line.strip("|").split("|", 2))
        who, _, revision = side.partition(" ")
        assert who in {"server", "client"}, line
        assert revision in {"", *REVISIONS}, line
        assert reason, f"{line} has no reason"
        for name in NAME.findall(scenarios):
            scenario, _, check = name.partition(":")
            found.append(Row(who, revision, scenario, check, reason))
    return found


def judged(verdict: Verdict, table: Iterable[Row]) -> tuple[str, list[str]]:
    """Return how a scenario ended, and what is wrong with that.

    It is `passed`, `skipped` with all of it in the table, or `failed`.
    """
    rows = [row for row in table if row.covers(verdict.scenario)]
    whole = [row for row in rows if not row.check]
    if whole:
        if verdict.has_passed:
            return "failed", ["it passes: remove its row from the table in docs/mcp.md"]
        return "skipped", []
    listed = {row.check for row in rows}
    wrong = [f"{id_}: {why}" for id_, why in verdict.bad.items() if id_ not in listed]
    wrong += [
        f"{id_} passes: remove its row from the table in docs/mcp.md"
        for id_ in sorted(listed - verdict.bad.keys())
    ]
    if not verdict.good and not verdict.bad:
        wrong.append("the suite checked nothing: it needs a row in docs/mcp.md")
    return ("failed" if wrong else "passed"), wrong
