"""Secrets by reference: a variable says where its value is, and no error shows the value."""

import os
import stat
import time
from pathlib import Path

import pytest

from orchestrator import open_orchestrator
from orchestrator.agents import DefinitionError
from orchestrator.agents.redaction.secret_variables import has_references
from orchestrator.agents.secret_references import CACHED_SECONDS, LARGEST, resolve_references
from orchestrator.ports.settings import Machine

VALUE = "s3cr3t-value-0123456789"
pytestmark = pytest.mark.realtime


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with programs that print secrets."""
    folder = tmp_path / "bin"
    folder.mkdir()
    bodies = {
        "vault": f'[ "$*" = "kv get -field=key kv/openai" ] && [ "$VAULT_ADDR" ] && echo {VALUE}',
        "pass": f'[ "$1 $2" = "show a b" ] && [ "$PWD" = / ] && printf "{VALUE}\\n\\n"',
        "fails": f"echo {VALUE}; echo {VALUE} >&2; exit 3",
        "empty": "true",
        "endless": "exec yes",
        "zero": r"printf 'a\0b'",
    }
    for name, body in bodies.items():
        file = folder / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(stat.S_IRWXU)
    return folder


def environ_with(programs: Path, **variables: str) -> dict[str, str]:
    return {"PATH": f"{programs}:{os.environ['PATH']}", "VAULT_ADDR": "http://x", **variables}


def test_files_commands_and_vault_give_the_values_of_variables(
    programs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{VALUE}\n")
    environ = environ_with(
        programs,
        A=f"secret:file:{file}",
        B="secret:command:pass show 'a b'",
        C="secret:vault:kv/openai#key",
        D="plain",
    )

    assert resolve_references(environ) == dict.fromkeys("ABC", VALUE)
    assert has_references(environ)
    assert not has_references({"D": "plain"})


def test_a_program_runs_once_for_many_orchestrators(programs: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    (programs / "counts").write_text(f"#!/bin/sh\necho x >> {log}; echo {VALUE}\n")
    (programs / "counts").chmod(stat.S_IRWXU)
    environ = environ_with(programs, KEY="secret:command:counts")
    with pytest.MonkeyPatch.context() as patched:
        now = 1000.0
        patched.setattr(time, "monotonic", lambda: now)
        for _ in range(3):
            assert resolve_references(environ) == {"KEY": VALUE}
        assert log.read_text() == "x\n"
        now += CACHED_SECONDS
        assert resolve_references(environ) == {"KEY": VALUE}
        assert log.read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("secret:file:/no/such/file", "No such file"),
        ("secret:file:/", "not a file"),
        ("secret:file:/dev/zero", "not a file"),
        ("secret:command:fails", "fails ended with 3"),
        ("secret:command:empty", "empty"),
        ("secret:command:endless", "more than 65,536 bytes"),
        ("secret:command:zero", "not text"),
        ("secret:command:no-such-program", "not on the path"),
        ("secret:command:/no/such/program", "cannot be run"),
        ("secret:command:", "no program"),
        ("secret:command:'", "words"),
        ("secret:vault:kv/openai", "no field"),
        ("secret:vault:kv/other#key", "vault ended with 1"),
        ("secret:aws:x", "aws: is none of"),
    ],
)
def test_an_error_names_the_variable_and_the_reference_but_no_value(
    programs: Path, reference: str, problem: str
) -> None:
    with pytest.raises(DefinitionError, match="OPENAI_API_KEY is ") as caught:
        resolve_references(environ_with(programs, OPENAI_API_KEY=reference))

    assert problem in str(caught.value)
    assert reference in str(caught.value)
    assert VALUE not in str(caught.value)


def test_a_program_in_the_folder_of_the_process_is_not_run(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(programs.parent)
    with pytest.raises(DefinitionError, match="pass is not on the path"):
        resolve_references({"PATH": str(programs), "KEY": "secret:command:pass show 'a b'"})


def test_a_secret_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"x" * (LARGEST + 1))
    with pytest.raises(DefinitionError, match="more than 65,536 bytes"):
        resolve_references({"KEY": f"secret:file:{file}"})


async def test_an_orchestrator_uses_hides_and_redacts_the_values_of_references(
    tmp_path: Path,
) -> None:
    file = tmp_path / "key"
    file.write_text(VALUE)
    environ = {"HOME": str(tmp_path), "HARMLESS": f"secret:file:{file}"}
    async with open_orchestrator(":memory:", machine=Machine(environ=environ)) as orchestrator:
        assert VALUE not in orchestrator.read.redactor.redact(f"it is {VALUE}!")
        commands = orchestrator.sessions.machine.settings.environ
        assert "HARMLESS" not in commands
        assert commands["HOME"] == str(tmp_path)
    with pytest.raises(DefinitionError, match="OTHER"):
        async with open_orchestrator(
            ":memory:", machine=Machine(environ={"OTHER": "secret:file:/none"})
        ):
            pass
