"""The built viewer matches its sources, and carries the licences of its libraries."""

import hashlib
import re
from pathlib import Path

import pytest

VIEWER = Path(__file__).parent.parent.parent / "orchestrator" / "products" / "viewer"
SCRIPTS = ("report.js", "console.js", "worker.js")
SOURCES = re.compile(r".*\.(js|mjs|css)|package\.json")


def sources() -> list[Path]:
    return [
        file
        for file in (VIEWER / "sources").rglob("*")
        if file.is_file() and "node_modules" not in file.parts
    ]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_built_viewer_matches_its_sources(script: str) -> None:
    """`make viewer` builds it anew. Not every machine has node, so a hash is compared."""
    digest = hashlib.sha256()
    named = {file.relative_to(VIEWER / "sources").as_posix(): file for file in sources()}
    for name in sorted(filter(SOURCES.fullmatch, named)):
        digest.update(name.encode() + b"\0" + named[name].read_bytes() + b"\0")

    first = (VIEWER / "built" / script).read_text().splitlines()[0]

    assert first == f"/*! sources sha256 {digest.hexdigest()} */"


def test_the_built_viewer_carries_the_licence_of_d3() -> None:
    built = (VIEWER / "built" / "report.js").read_text()

    assert "with d3-hierarchy 3.1.3" in built
    assert "Copyright 2010-2026 Mike Bostock" in built
    assert "Permission to use, copy, modify, and/or distribute" in built


def test_a_shipped_file_cannot_close_the_element_around_it() -> None:
    for file in (VIEWER / "built").iterdir():
        assert "</" not in file.read_text(), file


def test_the_viewer_never_reads_markup() -> None:
    """Text goes into the page as text: no function that parses markup is used."""
    for file in sources():
        if file.suffix != ".js":
            continue
        text = file.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
            assert word not in text, file


def test_no_source_of_the_viewer_has_grown_into_two() -> None:
    for file in sources():
        if file.suffix in {".js", ".css"}:
            assert len(file.read_text().splitlines()) <= 400, file
