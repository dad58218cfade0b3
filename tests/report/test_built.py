"""What ships is what the sources say, and carries the licence of what it is built with."""

import hashlib
import re
from pathlib import Path

REPORT = Path(__file__).parent.parent.parent / "orchestrator" / "report"
SOURCES = re.compile(r".*\.(js|mjs|css)|package\.json")


def test_the_built_viewer_is_that_of_these_sources() -> None:
    """`make viewer` builds it anew. Not every machine has node, so a hash is compared."""
    digest = hashlib.sha256()
    names = sorted(
        file.name for file in (REPORT / "viewer").iterdir() if file.is_file()
    )
    for name in filter(SOURCES.fullmatch, names):
        source = (REPORT / "viewer" / name).read_bytes()
        digest.update(name.encode() + b"\0" + source + b"\0")

    first = (REPORT / "built" / "viewer.js").read_text().splitlines()[0]

    assert first == f"/*! sources sha256 {digest.hexdigest()} */"


def test_the_built_viewer_carries_the_licence_of_d3() -> None:
    built = (REPORT / "built" / "viewer.js").read_text()

    assert "with d3-hierarchy 3.1.3" in built
    assert "Copyright 2010-2026 Mike Bostock" in built
    assert "Permission to use, copy, modify, and/or distribute" in built


def test_nothing_that_ships_can_end_the_element_it_stands_in() -> None:
    for name in ("viewer.js", "viewer.css"):
        assert "</" not in (REPORT / "built" / name).read_text()


def test_the_viewer_never_reads_markup() -> None:
    """Text goes into the page as text: whatever would parse it is not used at all."""
    for file in (REPORT / "viewer").glob("*.js"):
        text = file.read_text()
        for word in (
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
        ):
            assert word not in text, file


def test_no_source_of_the_viewer_has_grown_into_two() -> None:
    for file in (REPORT / "viewer").glob("*.js"):
        assert len(file.read_text().splitlines()) <= 400, file
