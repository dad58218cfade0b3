"""Every work queue, by name: the contract holds for each."""

import os
from collections.abc import Generator

import pytest
import trio

from tests.postgres import PostgresServer, open_postgres, require_postgres
from tests.workers.kit import IN_DATABASES, Leaf

LONG = bool(os.environ.get("LONG_PROOFS"))


@pytest.fixture(scope="session")
def template(postgres_server: PostgresServer) -> str:
    """A database in which Absurd is installed."""
    with postgres_server.new_database() as url:
        trio.run(install, Leaf("absurd", url))
        postgres_server.execute(
            f"create database leaves template {url.rpartition('/')[2].partition('?')[0]}"
        )
    return "leaves"


async def install(leaf: Leaf) -> None:
    async with leaf.open():
        pass


@pytest.fixture
def installed(postgres_server: PostgresServer, template: str) -> Generator[str]:
    """The address of a database with every work queue, each empty."""
    with postgres_server.new_database(template) as url:
        yield url


@pytest.fixture(params=["memory", *IN_DATABASES])
def leaf(request: pytest.FixtureRequest) -> Leaf:
    """A work queue of each kind, with nothing in it."""
    if request.param == "memory":
        return Leaf("memory")
    return Leaf(request.param, request.getfixturevalue("installed"))


@pytest.fixture(params=["memory", "postgres"])
def mail_leaf(request: pytest.FixtureRequest) -> Leaf:
    """Mailboxes and presence of each kind; the work queue does not matter to them."""
    if request.param == "memory":
        return Leaf("memory")
    return Leaf("absurd", request.getfixturevalue("installed"))


# The documented one is killed in the long proofs only: each of these takes four processes.
@pytest.fixture(params=IN_DATABASES if LONG else ["absurd"])
def stored_leaf(request: pytest.FixtureRequest, installed: str) -> Leaf:
    """A work queue of each kind that several processes share."""
    return Leaf(request.param, installed)


@pytest.fixture(scope="session")
def own_server() -> Generator[PostgresServer]:
    """A server that a test may stop."""
    require_postgres()
    with open_postgres() as server:
        yield server


@pytest.fixture(params=IN_DATABASES if LONG else ["absurd"])
def leaf_of_own_server(
    request: pytest.FixtureRequest, own_server: PostgresServer
) -> Generator[Leaf]:
    with own_server.new_database() as url:
        yield Leaf(request.param, url)
