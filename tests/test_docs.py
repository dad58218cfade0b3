"""The documents are true: Python blocks run, commands and links exist."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the code blocks of all documents, with the place of each."""
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [
        (f"{document.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}", found[1])
        for document in DOCUMENTS
        for text in [document.read_text()]
        for found in fence.finditer(text)
    ]


@pytest.fixture(scope="module")
def openai_url() -> Iterator[str]:
    """Start a server that speaks OpenAI's protocol, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "fake_openai.py")], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        server.terminate()


@pytest.mark.parametrize("code", [pytest.param(code, id=place) for place, code in blocks("python")])
def test_python_in_the_documents_runs(
    code: str, openai_url: str, tmp_path: Path, python: list[str], request: pytest.FixtureRequest
) -> None:
    is_in_database = 'os.environ["ORCHESTRATOR_JOURNAL"]' in code
    journal = request.getfixturevalue("postgres") if is_in_database else ""
    done = run_python(code, openai_url, tmp_path, python=python, ORCHESTRATOR_JOURNAL=journal)

    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_first_program_of_the_readme_answers_without_a_key(tmp_path: Path) -> None:
    """With a journal where a user has it, and nothing in the environment."""
    _, code = next(block for block in blocks("python") if block[0].startswith("README"))
    done = run_python(code, "", tmp_path, python=[sys.executable], OPENAI_API_KEY="")

    assert done.stdout == "A brief.\n"
    assert (tmp_path / "journal.db").exists()


def run_python(
    code: str, openai_url: str, home: Path, *, python: list[str], **more: str
) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "ORCHESTRATOR_HOME": str(home),
        "OPENAI_API_KEY": "not-a-real-key",
        "OPENAI_BASE_URL": openai_url,
        # A proxy that the machine is set up with must not come between.
        "NO_PROXY": "127.0.0.1",
        **more,
    }
    return subprocess.run(
        [*python, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env=environ,
        timeout=60,
        check=False,
    )


def test_every_command_in_the_documents_exists(python: list[str]) -> None:
    named = {
        command
        for _, block in blocks("(?:console|sh)")
        for command in re.findall(r"^\$ orchestrator (\w+)", block, re.MULTILINE)
    }

    assert named
    for command in named:
        help_ = [*python, "-m", "orchestrator", command, "--help"]
        assert subprocess.run(help_, capture_output=True, check=True).stdout


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        named = re.findall(r"`make ([a-z-]+)`", document.read_text())
        assert set(named) <= targets, document


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for document in DOCUMENTS:
        # A page elsewhere is not ours to look for.
        for link in re.findall(r"\]\((?!https://)([^)#]+)\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document}: {link}"


@pytest.mark.parametrize("code", [pytest.param(code, id=place) for place, code in blocks("python")])
def test_a_program_of_the_documents_can_be_loaded_without_being_run(code: str) -> None:
    """`orchestrator simulate FILE` loads a file for its agents, and must not pay for models."""
    for line in code.splitlines():
        assert not re.match(r"(\w+ = )?(trio\.run|asyncio\.run|run_sync)\(", line), (
            f'`{line}` belongs under if __name__ == "__main__":'
        )
