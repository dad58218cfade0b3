"""The matrix of clients in the docs is the recorded one, and the official client is as recorded.

`make clients` tries the others, which need environments of their own.
"""

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.clients.__main__ import AGENTS, run_program
from tests.clients.environments import CLIENTS, PINS, PROGRAMS, MissingNodeError, node
from tests.clients.matrix import FEATURES, Check, Trial, read_record, table, tables, tables_of_page
from tests.server.server_process import server_process


def test_the_tables_of_the_page_equal_the_recorded_ones() -> None:
    """`python -m tests.clients --record` writes both."""
    assert tables_of_page() == tables(read_record())


def test_each_client_is_recorded_and_each_check_has_its_row() -> None:
    record = read_record()
    features = {it.feature for trial in record.values() for it in trial.checks}

    assert [*record] == [client.title for client in CLIENTS]
    assert features == set(FEATURES)


def test_client_requirements_are_pinned_by_hash_without_an_address() -> None:
    for client in CLIENTS:
        if client.is_python:
            text = (PINS / f"{client.pins}.txt").read_text().replace("\\\n", "")
            for requirement in text.splitlines():
                assert "==" in requirement
                assert "--hash=sha256:" in requirement
                assert "//" not in requirement
        else:
            lock = json.loads((PINS / client.pins / "package-lock.json").read_text())
            packages = [one for name, one in lock["packages"].items() if name]
            assert all(one["integrity"].startswith("sha512-") for one in packages)
            assert not any("resolved" in one for one in packages)


def test_a_failure_is_a_note_of_the_table() -> None:
    works = Check("plain", "a prompt")
    fails = Check("stream", "a stream", error="ValueError: no", fails="it cannot")
    breaks = Check("usage", "another", error="KeyError: 'x'")
    made = table({"one": Trial({"one": "1.0"}, [works, fails, breaks])})

    assert "| version | 1.0 |" in made
    assert f"| {FEATURES['plain']} | ✓ |" in made
    assert f"| {FEATURES['stream']} | ✓ but 1 |" in made
    assert f"| {FEATURES['usage']} | ✗ 2 |" in made
    assert "1. one, *a stream*: it cannot.\n" in made
    assert "2. one, *another*: fails: KeyError: 'x'.\n" in made


def test_a_missing_or_old_node_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingNodeError, match="node 22 or newer with npm, and there is none"):
        node()
    for name in ("node", "npm"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho v20.1.0\n")
        program.chmod(0o755)
    with pytest.raises(MissingNodeError, match=r"v20\.1\.0 is too old"):
        node()


@pytest.mark.realtime
@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_the_official_client_passes_the_recorded_checks(name: str, tmp_path: Path) -> None:
    recorded = read_record()[f"{name} (Python)"]
    command = [sys.executable, str(PROGRAMS / f"{name}_checks.py")]
    async with server_process(tmp_path, AGENTS) as server:
        trial = await run_program(server, command, tmp_path)

    works = {it.check for it in recorded.checks if it.works}
    assert [it.check for it in trial.checks] == [it.check for it in recorded.checks]
    assert [it for it in trial.checks if it.check in works and not it.works] == []
