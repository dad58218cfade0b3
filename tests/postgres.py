"""A real Postgres for tests: started when a test first asks for it, and gone with the tests.

Its folder, its socket and its processes are its own: no other Postgres of the machine is touched.
The superuser `postgres` needs no password over the socket; every other role needs one.
"""

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread  # noqa: TID251 (it reads the log of the server)
from typing import Final
from urllib.parse import quote

import pytest

INSTALL: Final = (
    "Postgres is not installed. Install it: apt-get install postgresql"
    " (elsewhere: initdb and postgres on the path)"
)
SUPERUSER: Final = "postgres"
READY: Final = "database system is ready to accept connections"
START_SECONDS: Final = 60
STOP_SECONDS: Final = 60
STOP_SIGNALS: Final = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
PR_SET_PDEATHSIG: Final = 1
ACCESS: Final = """
local all postgres trust
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""
SETTINGS: Final = {
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "jit": "off",
    "lc_messages": "C",
    "log_checkpoints": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}


def find_program(name: str) -> Path | None:
    """Return a program of Postgres: of the newest one that Debian has, or on the path."""
    debian = Path("/usr/lib/postgresql")
    found = sorted(
        (it for it in debian.glob(f"*/bin/{name}") if it.parts[-3].isdecimal()),
        key=lambda it: int(it.parts[-3]),
    )
    if found:
        return found[-1]
    on_path = shutil.which(name)
    # Other programs are found beside the real one.
    return None if on_path is None else Path(os.path.realpath(on_path))


def _user() -> str | None:
    """Return the user that runs the server: Postgres refuses to run as root."""
    if os.getuid() != 0:
        return None
    known = {it.pw_name for it in pwd.getpwall()}
    return SUPERUSER if SUPERUSER in known else "nobody"


class PostgresServer:
    """A server with a folder of its own. `open_postgres` makes one, and removes it."""

    def __init__(self, folder: Path, *, tcp: bool = False, fsync: bool = False) -> None:
        initdb, postgres = find_program("initdb"), find_program("postgres")
        if initdb is None or postgres is None:
            raise FileNotFoundError(INSTALL)
        self.folder = folder
        self.port = free_port() if tcp else 5432
        self.tcp = tcp
        self._postgres = postgres
        self.user = _user()
        self._settings = {**SETTINGS, "fsync": "on" if fsync else "off"}
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []
        self._reader: Thread | None = None
        self._numbers = count(1)
        if self.user is not None:
            shutil.chown(folder, self.user)
        self.run(
            *(initdb, "--no-sync", "--no-instructions", "--username", SUPERUSER),
            *("--encoding", "UTF8", "--locale", "C", "--auth", "trust"),
            *("--pgdata", self.data),
        )
        (self.data / "pg_hba.conf").write_text(ACCESS)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        """The log of the server."""
        return "".join(self._log)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def run(self, *command: object) -> None:
        """Run a program as the user of the server."""
        done = subprocess.run(
            [str(word) for word in command],
            user=self.user,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def start(self, **settings: str) -> None:
        """Start the server, and wait until it accepts connections.

        Args:
            settings: of Postgres, in place of the usual ones.
        """
        assert self._process is None, "it runs"
        words = {
            **self._settings,
            "unix_socket_directories": str(self.folder),
            "listen_addresses": "127.0.0.1" if self.tcp else "",
            "port": str(self.port),
            **settings,
        }
        options = [word for it in words.items() for word in ("-c", "=".join(it))]
        ready = Event()
        self._reader = Thread(target=self._run, args=(options, ready), daemon=True)
        self._reader.start()
        assert ready.wait(START_SECONDS), self.log
        if self._process is None or self._process.poll() is not None or READY not in self.log:
            self._forget()
            raise RuntimeError(f"Postgres does not start:\n{self.log}")

    def _run(self, options: Sequence[str], ready: Event) -> None:
        """Start the server, and read its log until it ends.

        The server dies with the thread that has started it, and this one lives as long as it does.
        """
        try:
            self._process = process = subprocess.Popen(
                [str(self._postgres), "-D", str(self.data), *options],
                user=self.user,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # Whatever ends the tests ends the server.
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread of ours holds a lock here)
                start_new_session=True,  # Ctrl-C ends the tests, which stop the server
            )
            assert process.stderr is not None
            for line in process.stderr:
                self._log.append(line)
                if READY in line:
                    ready.set()
        finally:
            ready.set()

    def stop(self, mode: str = "fast") -> None:
        """Stop the server if it runs: `smart`, `fast`, or `immediate`, which is like a crash."""
        if self._process is None:
            return
        self._process.send_signal(STOP_SIGNALS[mode])
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(STOP_SIGNALS["immediate"])
            self._process.wait(STOP_SECONDS)
        self._forget()

    @contextmanager
    def silent(self) -> Generator[None]:
        """Stop all processes of the server: connections stay, and nothing is answered."""
        # Each has a group of its own. The first one goes first: it starts no others then.
        os.kill(self.pid, signal.SIGSTOP)
        listed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        processes = [self.pid, *map(int, listed.split())]
        try:
            for process in processes:
                os.kill(process, signal.SIGSTOP)
            yield
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stderr is not None:
            process.wait(STOP_SECONDS)
            if self._reader is not None:
                self._reader.join()
            process.stderr.close()

    def url(
        self,
        database: str = "postgres",
        *,
        user: str = SUPERUSER,
        password: str = "",
        tcp: bool = False,
    ) -> str:
        """Return the address of a database, over the socket or over TCP."""
        who = f"{quote(user)}:{quote(password)}" if password else quote(user)
        if tcp:
            assert self.tcp, "it listens at no port: open_postgres(tcp=True)"
            return f"postgresql://{who}@127.0.0.1:{self.port}/{database}"
        port = "" if self.port == 5432 else f"&port={self.port}"
        return f"postgresql://{who}@/{database}?host={quote(str(self.folder), safe='')}{port}"

    def execute(self, *statements: str, database: str = "postgres") -> Sequence[tuple[object, ...]]:
        """Execute statements as the superuser, and return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            rows: Sequence[tuple[object, ...]] = ()
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else ()
            return rows

    @contextmanager
    def new_database(self, template: str = "template0") -> Generator[str]:
        """Create an empty database, yield its address, and drop it."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.url(name)
        finally:
            if self._process is not None:
                self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return int(it.getsockname()[1])


@contextmanager
def open_postgres(
    *, tcp: bool = False, fsync: bool = False, **settings: str
) -> Generator[PostgresServer]:
    """Start a server of one's own: for tests that stop it, fill it or change its settings.

    Args:
        tcp: listen at a free port of 127.0.0.1, too.
        fsync: write to the disk as a real one does.
        settings: of Postgres.

    Raises:
        FileNotFoundError: there is no Postgres on this machine.
    """
    # Not in the folder of the tests: only their user may enter that, and its path is too long
    # for a socket.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    server: PostgresServer | None = None
    try:
        server = PostgresServer(folder, tcp=tcp, fsync=fsync)
        server.start(**settings)
        yield server
    finally:
        if server is not None:
            server.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def require_postgres() -> None:
    """Skip a test where there is no Postgres; the summary of the tests says so."""
    if find_program("initdb") is None:
        pytest.skip(INSTALL)
    pytest.importorskip("psycopg", reason="psycopg is not installed", exc_type=ImportError)


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    """The server that all tests of this process share. Do not stop it."""
    require_postgres()
    with open_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Generator[str]:
    """The address of an empty database."""
    with postgres_server.new_database() as url:
        yield url


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not tested."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", ())
        if INSTALL in str(getattr(report, "longrepr", ""))
    ]
    if skipped:
        terminalreporter.write_sep("=", "Postgres is NOT tested", red=True, bold=True)
        terminalreporter.write_line(f"{len(skipped)} tests were skipped. {INSTALL}")
