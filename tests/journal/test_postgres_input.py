"""A broken database is reported in one sentence, with exit 2 and without the password."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio

from orchestrator.backends import is_database, journals_at, store_at
from orchestrator.cli.app import run_command
from orchestrator.kernel.errors import JournalError
from orchestrator.products.cluster.database.address import LEASE_SECONDS, parse_address
from orchestrator.products.cluster.database.schema import VERSION
from tests.postgres import PostgresServer, free_port, open_postgres, require_postgres

pytestmark = pytest.mark.realtime

PASSWORD: Final = "correct-horse"
TEAM: Final = """
from orchestrator.agents import Agent, ScriptedModel

helper = Agent("helper", model=ScriptedModel.always("done"))
"""
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    require_postgres()
    with open_postgres(tcp=True, max_connections="8") as server:
        server.execute(f"CREATE ROLE ann LOGIN PASSWORD '{PASSWORD}'")
        yield server


@pytest.fixture
def database(server: PostgresServer) -> Generator[str]:
    """The name of an empty database of ann's."""
    server.execute("CREATE DATABASE anns OWNER ann")
    yield "anns"
    server.execute("DROP DATABASE anns WITH (FORCE)")


def anns(server: PostgresServer, database: str, password: str = PASSWORD) -> str:
    return server.url(database, user="ann", password=password, tcp=True)


@pytest.fixture
def refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refused:
    """Return a function that runs an agent and lists runs, and returns why neither works."""
    team = tmp_path / "team.py"
    team.write_text(TEAM)

    def run(address: str) -> str:
        monkeypatch.setenv("ORCHESTRATOR_JOURNAL", address)
        said: list[str] = []
        for arguments in (["run", f"{team}:helper", "go"], ["runs"]):
            assert run_command(arguments) == 2
            out, err = capsys.readouterr()
            assert out == ""
            assert PASSWORD not in err
            assert "wrong-pony" not in err
            assert "Traceback" not in err
            assert err.count("\n") == 1
            said.append(err)
        return said[0]

    return run


def test_an_unreachable_server_is_reported(refused: Refused) -> None:
    address = f"postgresql://ann:{PASSWORD}@127.0.0.1:{free_port()}/anns"
    assert "/anns: Connection refused" in refused(address)


def test_a_wrong_password(server: PostgresServer, database: str, refused: Refused) -> None:
    said = refused(anns(server, database, "wrong-pony"))
    assert f'127.0.0.1:{server.port}/anns: password authentication failed for user "ann"' in said


def test_a_missing_database_is_reported(server: PostgresServer, refused: Refused) -> None:
    assert 'database "none" does not exist' in refused(anns(server, "none"))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://ann:correct-horse%zz@127.0.0.1/x",
        "postgresql://ann:correct-horse@127.0.0.1/x?journal=a&port=correct-horse%zz",
        "postgresql://ann:correct-horse@127.0.0.1/x?journal=",
        "postgresql://ann:correct-horse@127.0.0.1/x?lease=-1",
    ],
)
def test_an_invalid_address_is_refused(address: str, refused: Refused) -> None:
    assert "its address" in refused(address)


def test_tables_of_another_application(
    server: PostgresServer, database: str, refused: Refused
) -> None:
    server.execute(
        "CREATE SCHEMA orchestrator AUTHORIZATION ann",
        "CREATE TABLE orchestrator.sessions (mine text)",
        "ALTER TABLE orchestrator.sessions OWNER TO ann",
        database=database,
    )
    assert "tables of another application" in refused(anns(server, database))
    tables = server.execute(
        "SELECT relname FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid"
        " WHERE nspname = 'orchestrator'",
        database=database,
    )
    assert tables == [("sessions",)]


def test_a_newer_schema_and_another_cluster(
    server: PostgresServer,
    database: str,
    refused: Refused,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two clusters on one database are told apart by the name that each gives itself."""
    url = anns(server, database)
    (tmp_path / "ours.py").write_text(TEAM)
    ours = ["--journal", f"{url}?cluster=production"]
    assert run_command(["run", f"{tmp_path / 'ours.py'}:helper", "go", *ours]) == 0
    assert capsys.readouterr().out == "done\n"

    def contents() -> object:
        return server.execute(
            "SELECT version, cluster.name, journals::text FROM orchestrator.cluster,"
            " orchestrator.journals",
            database=database,
        )

    before = contents()
    said = refused(f"{url}?cluster=staging")
    assert "it belongs to the cluster 'production', not to 'staging'" in said
    assert contents() == before

    server.execute("UPDATE orchestrator.cluster SET version = 99", database=database)
    before = contents()
    assert "version 99: it was written by a newer orchestrator" in refused(url)
    assert contents() == before
    server.execute(f"UPDATE orchestrator.cluster SET version = {VERSION}", database=database)
    server.execute("UPDATE orchestrator.journals SET facts = 999", database=database)
    with pytest.raises(JournalError, match="facts of version 999"):
        store_at(f"{url}?journal=run-1").preview_prune(before=0)


def test_a_server_without_free_connections_is_reported(
    server: PostgresServer, database: str, refused: Refused
) -> None:
    url = anns(server, database)
    held: list[psycopg.Connection] = []
    try:
        with pytest.raises(psycopg.OperationalError):
            held.extend(psycopg.connect(url) for _ in range(9))
        said = refused(url)
    finally:
        for connection in held:
            connection.close()
    assert "connection" in said
    assert journals_at(url).names() == []


def test_a_pooler_that_shares_connections_between_transactions(
    server: PostgresServer, database: str
) -> None:
    """It is found by a LISTEN that hears nothing."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed: apt-get install pgbouncer")
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="pooler-"))
    folder.chmod(0o755)  # another user enters it
    users, settings = folder / "users.txt", folder / "pgbouncer.ini"
    users.write_text(f'"ann" "{PASSWORD}"\n')
    settings.write_text(
        f"[databases]\n{database} = host=127.0.0.1 port={server.port}\n"
        f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\n"
        f"auth_type=plain\nauth_file={users}\npool_mode=transaction\n"
    )
    with subprocess.Popen(
        [program, settings],
        user="nobody" if os.getuid() == 0 else None,
        stderr=subprocess.PIPE,
        text=True,
    ) as pooler:
        try:
            assert pooler.stderr is not None
            assert any("process up" in line for line in pooler.stderr)
            url = f"postgresql://ann:{PASSWORD}@127.0.0.1:{port}/{database}"
            with pytest.raises(JournalError, match="a pooler in front of it"):
                trio.run(_open, f"{url}?journal=one")
        finally:
            pooler.kill()
            shutil.rmtree(folder)


async def _open(address: str) -> None:
    async with store_at(address).open_writer():
        pass


def test_a_missing_psycopg_is_reported_with_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('not installed')")
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "runs", "--journal", "postgresql://h/d"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "needs psycopg: pip install 'delegation-orchestrator[postgres]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_address_names_the_database_the_journal_and_the_lease() -> None:
    address = parse_address(
        "postgresql://ann:a?b@h:1/d?host=/tmp&journal=run-1&lease=3&cluster=x%20y"
    )
    assert address.url == "postgresql://ann:a?b@h:1/d?host=/tmp"
    assert (address.journal, address.lease, address.cluster) == ("run-1", 3, "x y")
    assert "a?b" not in repr(address)
    plain = parse_address("postgres://h/d")
    assert (plain.url, plain.journal) == ("postgres://h/d", "")
    assert plain.lease == LEASE_SECONDS
    assert is_database("postgres://h/d")
    assert not is_database("./postgresql")
