"""Opens a connection to Postgres, and reports problems in a sentence without the password."""

import re
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from orchestrator.ports.errors import JournalAwayError, JournalError
from orchestrator.products.cluster.database.address import parse_address

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[object, ...]]

NEEDS_PSYCOPG: Final = "needs psycopg: pip install 'delegation-orchestrator[postgres]'"
SETTINGS: Final = {
    # A peer that vanishes without a word is noticed within about fifteen seconds.
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "client_encoding": "UTF8",
}
_FULL: Final = re.compile(r"too many (?:clients|connections)|connection slots")
"""The error of Postgres without a free connection: one is free once others have ended."""


def connect(url: str, *, application: str) -> "Connection":
    """Open a connection whose statements are transactions of their own; blocking.

    The timeouts in the address hold. Raise `JournalError` if there is no psycopg or no connection.
    """
    settings = _settings_of(url)
    import psycopg

    chosen = {**SETTINGS, "application_name": application, **settings}
    for attempt in (1, 2):
        try:
            return psycopg.connect(**chosen, autocommit=True)  # type: ignore[arg-type]
        except psycopg.Error as exc:
            # It may have begun to accept connections since: so it is asked twice. One that has
            # said nothing until now is not asked for as long again.
            is_silent = isinstance(exc, psycopg.errors.ConnectionTimeout)
            is_there = not is_silent and _accepts_connections(chosen)
            if not is_there or attempt == 2:
                raise UnreachableError(
                    url, problem_of(url, exc), lasting=is_there and _FULL.search(str(exc)) is None
                ) from None
    raise AssertionError("the second attempt returns or raises")


@contextmanager
def connected(url: str, where: str) -> "Generator[Connection]":
    """Open a connection that reads, for the block, or raise `JournalError`; blocking."""
    connection = connect(url, application="orchestrator reader")
    import psycopg

    with closing(connection):
        try:
            yield connection
        except psycopg.Error as exc:
            if connection.closed:
                raise UnreachableError(url, problem_of(url, exc)) from exc
            raise JournalError(where, problem_of(url, exc)) from exc


def _settings_of(url: str) -> "Mapping[str, object]":
    """Return the settings in an address; raise `JournalError` if it is wrong; blocking."""
    try:
        import psycopg  # an extra
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as exc:
        raise JournalError("in Postgres", NEEDS_PSYCOPG) from exc
    try:
        return conninfo_to_dict(parse_address(url).url)
    except psycopg.Error:
        # The error of the parser may quote the password.
        raise JournalError(
            "in Postgres", "its address is not of the form postgresql://user@host/database"
        ) from None


def _accepts_connections(settings: Mapping[str, object]) -> bool:
    """Return whether the server is up, and so has refused us in particular.

    libpq knows the state of SQL in the answer; the words of it are in any language.
    """
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import PGconn, Ping

    conninfo = make_conninfo("", **settings)  # type: ignore[arg-type]
    return bool(PGconn.ping(conninfo.encode()) == Ping.OK)


class UnreachableError(JournalAwayError):
    """No connection to the database is to be had now."""

    def __init__(self, url: str, problem: str, *, lasting: bool = False) -> None:
        super().__init__(shown_address(url), problem)
        self.lasting = lasting
        """Waiting does not help: the server refuses who asks, or what it asks for."""


def shown_address(url: str) -> str:
    """Return where a database is, without who may enter it."""
    settings = _settings_of(url)
    host = settings.get("host") or settings.get("hostaddr") or "localhost"
    port = settings.get("port")
    name = settings.get("dbname") or settings.get("user") or ""
    return f"postgresql://{host}{f':{port}' if port else ''}/{name}"


def password_of(url: str) -> str:
    """Return the password in the address of a database; empty if there is none."""
    return str(_settings_of(url).get("password") or "")


def problem_of(url: str, exc: Exception) -> str:
    """Return the message of an error of psycopg, in one line, without the password."""
    text = re.sub(r"\s+", " ", str(exc)).strip()
    # libpq says first where it tried, which the address says already.
    text = re.sub(
        r"^connection (?:failed|is bad): (?:connection to server .*? failed: )?", "", text
    )
    text = re.sub(r"^(?:FATAL|ERROR|PANIC): +", "", text)
    text = re.sub(r" Is the server running .*", "", text)
    password = password_of(url)
    return text.replace(password, "***") if password else text
