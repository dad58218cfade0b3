"""The token: where it comes from, and which values are refused."""

import socket
import stat
import subprocess
from pathlib import Path

import pytest

from orchestrator.kernel.errors import ServerSetupError
from orchestrator.products.server.transport.api_key import (
    is_loopback,
    load_or_create_secret,
    token_for,
)
from tests.server.server_process import AGENTS, ROOT

GOOD = "0123456789abcdef"


def test_a_token_of_the_environment_is_used_and_not_stored(tmp_path: Path) -> None:
    token = token_for({"ORCHESTRATOR_API_KEY": GOOD}, tmp_path, is_local=False)

    assert token.value == GOOD
    assert list(tmp_path.iterdir()) == []
    assert GOOD not in repr(token)


def test_one_is_made_and_found_again(tmp_path: Path) -> None:
    made = token_for({}, tmp_path / "new", is_local=True)
    again = token_for({}, tmp_path / "new", is_local=False)

    assert made.value == again.value
    assert (made.is_new, again.is_new) == (True, False)
    assert made.file is not None
    assert stat.S_IMODE(made.file.stat().st_mode) == 0o600


def test_two_concurrent_starts_share_one_secret(tmp_path: Path) -> None:
    """The first one has made its secret, and not yet written it."""
    file = tmp_path / "secret"
    inner: list[str] = []

    def new() -> str:
        inner.append(load_or_create_secret(file, lambda: GOOD).value)
        return GOOD[::-1]

    outer = load_or_create_secret(file, new)

    assert [outer.value] == inner == [GOOD]
    assert not outer.is_new
    assert [it.name for it in tmp_path.iterdir()] == ["secret"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "given",
    [
        *("short", "x" * 40, "changeme-changeme-1", "your-api-key-goes-here", "${TOKEN:-0}"),
        *("with a space 123456", "mit-ümlaut-1234567", "YOUR_TOKEN_01234567"),
    ],
)
def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(ServerSetupError, match="openssl rand"):
        token_for({"ORCHESTRATOR_API_KEY": given}, tmp_path, is_local=True)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = token_for({}, tmp_path, is_local=True).file
    assert file is not None
    file.chmod(0o640)

    with pytest.raises(ServerSetupError, match="other users can read"):
        token_for({}, tmp_path, is_local=True)


def test_a_link_to_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(GOOD)
    (tmp_path / "api_key").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ServerSetupError, match="cannot be read"):
        token_for({}, tmp_path, is_local=True)


def test_other_machines_get_no_token_that_the_owner_has_not_seen(tmp_path: Path) -> None:
    with pytest.raises(ServerSetupError, match="set ORCHESTRATOR_API_KEY"):
        token_for({}, tmp_path, is_local=False)

    assert list(tmp_path.iterdir()) == []


def test_is_loopback_recognizes_addresses_of_this_machine() -> None:
    local = ("127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST")

    assert all(map(is_loopback, local))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.py"], "there is no file nothing.py"),
        (["agents_file.py:nobody"], "has no agent 'nobody'"),
        (["agents_file.py", "--port", "70000"], "--port is 70000"),
        (["agents_file.py", "--port", "{busy}"], "Address already in use"),
        (["agents_file.py", "--host", "0.0.0.0"], "--insecure, if a proxy"),
        (["agents_file.py", "--host", "0.0.0.0", "--insecure"], "there is no key"),
        (["agents_file.py", "--host", "no.such.host.invalid"], "in the clear"),
        (["agents_file.py", "--tls-cert", "no.pem"], "No such file"),
        (["agents_file.py", "--tls-cert", "agents_file.py"], "must be PEM"),
        (["agents_file.py", "--tls-key", "agents_file.py"], "give --tls-cert"),
        (["agents_file.py", "--connections-per-peer", "0"], "per-peer is 0"),
        (["agents_file.py", "--webhook", "ftp://user:pw@host/"], "--webhook is not a URL"),
        (["agents_file.py", "--grace", "-1"], "--grace is -1"),
        (["agents_file.py", "--body-limit", "0"], "--body-limit is 0"),
        (["agents_file.py", "--workspace", "no_folder"], "is not a folder"),
    ],
)
def test_a_setup_error_is_reported_in_one_sentence(
    tmp_path: Path, python: list[str], arguments: list[str], says: str
) -> None:
    (tmp_path / "agents_file.py").write_text(AGENTS)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        named = [it.format(busy=busy.getsockname()[1]) for it in arguments]
        ended = subprocess.run(
            [*(*python, "-m", "orchestrator", "serve", *named), *("--journal", "journal.db")],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "pw" not in ended.stderr
