"""The Postgres of the tests: it starts, is like a real one, and leaves nothing behind."""

import os

import psycopg
import pytest

from tests.postgres import PostgresServer, open_postgres, require_postgres


def test_each_test_has_a_database_of_its_own(
    postgres: str, postgres_server: PostgresServer
) -> None:
    with (
        postgres_server.new_database() as other,
        psycopg.connect(postgres) as first,
        psycopg.connect(other) as second,
    ):
        first.execute("CREATE TABLE here ()")
        found = second.execute("SELECT to_regclass('here')").fetchone()
        assert found == (None,)


def test_a_server_can_be_crashed_and_started_again() -> None:
    require_postgres()
    with open_postgres(tcp=True) as server, server.new_database() as url:
        name = url.partition("@/")[2].partition("?")[0]
        server.execute("CREATE TABLE kept ()", database=name)
        server.execute("CREATE ROLE ann LOGIN PASSWORD 'correct'")
        server.stop("immediate")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        psycopg.connect(server.url(name, user="ann", password="correct", tcp=True)).close()
        with pytest.raises(psycopg.OperationalError, match="password authentication"):
            psycopg.connect(server.url(name, user="ann", password="wrong"))
        pid, folder = server.pid, server.folder
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
