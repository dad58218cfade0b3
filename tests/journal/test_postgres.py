"""The journal in Postgres: one writer by its epoch, whatever happens to it or to the database."""

import logging
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
import trio
import trio.testing

from orchestrator import JournalError, JournalInUseError, Machine, open_orchestrator
from orchestrator.agents import Agent, ModelRequest
from orchestrator.backends import journals_at, store_at
from orchestrator.delegation import Rules, SessionId
from orchestrator.kernel.journal import write_queue
from orchestrator.kernel.journal.audit import AuditEvent
from orchestrator.kernel.journal.journal import Journal
from orchestrator.kernel.journal.store import Level
from orchestrator.products.cluster.database import statements
from orchestrator.products.cluster.database.address import parse_address
from orchestrator.products.cluster.database.connection import UnreachableError
from orchestrator.products.cluster.journal.journal import PostgresJournal
from orchestrator.testing import assert_laws
from tests.journal.contract.kit import all_entries, append, editor, message
from tests.kit import FunctionModel, worker
from tests.postgres import PostgresServer, open_postgres, require_postgres

pytestmark = pytest.mark.realtime

HOLD = """
import sys, trio
from orchestrator import open_orchestrator
from tests.kit import worker

async def main():
    async with open_orchestrator(sys.argv[1]) as orchestrator:
        print((await orchestrator.run(worker(), "first")).id, flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)
        print((await orchestrator.run(worker(), "second")).output, flush=True)

try:
    trio.run(main)
except Exception as exc:
    print(type(exc).__name__, flush=True)
    sys.exit(2)
"""


AUDIT = AuditEvent(actor="server", action="test")


@contextmanager
def start(code: str, *arguments: str) -> Generator[subprocess.Popen[str]]:
    """Start a process that is killed at the end, whatever it does."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def wait_expired(url: str) -> None:
    """Wait until the lease of a writer that says nothing more is over."""

    def wait() -> None:
        writer = store_at(url).writer()
        assert writer is not None
        assert writer.seconds_left is not None
        with psycopg.connect(parse_address(url).url) as connection:
            connection.execute("SELECT pg_sleep(%s)", (writer.seconds_left + 0.01,))

    await trio.to_thread.run_sync(wait)


def assert_whole(url: str) -> None:
    """Check that the journal is sound and the laws hold."""
    store = store_at(url)
    wrong = [it.text for it in store.check() if it.level is Level.WRONG]
    assert wrong == []
    assert_laws(all_entries(store))


class EventOfLog(logging.Handler):
    """Sets an event when the journal says that the database is away."""

    def __init__(self) -> None:
        super().__init__()
        self.away = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if "waiting for it" in record.getMessage():
            trio.from_thread.run_sync(self.away.set)


@pytest.fixture
def away() -> Generator[trio.Event]:
    """An event that is set in the thread of the journal when an outage begins."""
    handler = EventOfLog()
    log = logging.getLogger("orchestrator.journal")
    log.addHandler(handler)
    yield handler.away
    log.removeHandler(handler)


@pytest.fixture
def journal_url(postgres: str) -> str:
    """One journal of a database, with a lease that is long for a test."""
    return f"{postgres}&journal=one&lease=30"


def take_over(server: PostgresServer, url: str) -> None:
    """Do to the journal what another process does when the lease is over."""
    database = url.partition("@/")[2].partition("?")[0]
    server.execute(
        "UPDATE orchestrator.journals SET epoch = epoch + 1, process = 7, host = 'other',"
        " until = clock_timestamp() + interval '1 minute'",
        database=database,
    )


def entries_in(server: PostgresServer, url: str) -> object:
    database = url.partition("@/")[2].partition("?")[0]
    ((count,),) = server.execute("SELECT count(*) FROM orchestrator.entries", database=database)
    return count


async def test_a_writer_that_lost_its_journal_stops_writing(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    store = store_at(journal_url)
    with pytest.raises(JournalInUseError, match="process 7 is writing it on other"):  # noqa: PT012
        async with store.open_writer() as journal:
            append(journal, [message("r_one")])
            await journal.wait_durable(1)
            take_over(postgres_server, journal_url)
            append(journal, [message("r_one")], first=2)
            await journal.wait_durable(2)
    assert entries_in(postgres_server, journal_url) == 1
    # Leaving does not end the lease of the other one.
    writer = store.writer()
    assert writer is not None
    assert (writer.process, writer.host, writer.epoch) == (7, "other", 2)


async def test_a_fenced_writer_neither_prunes_nor_stores_snapshots(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    async with open_orchestrator(journal_url) as orchestrator:
        await orchestrator.run(worker(), "go")
    before = entries_in(postgres_server, journal_url)
    with pytest.raises(JournalInUseError):  # noqa: PT012
        async with store_at(journal_url).open_writer() as journal:
            take_over(postgres_server, journal_url)
            await journal.prune(before=1e11, release=lambda _: True)
    assert entries_in(postgres_server, journal_url) == before
    with store_at(journal_url).open_reader() as reader:
        assert reader.count() == 1


async def test_an_orchestrator_that_lost_its_journal_asks_no_model(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    asked: list[str] = []

    async def answer(_: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        asked.append("it")
        return "done"

    agent = Agent("asked", model=FunctionModel(answer))
    with pytest.raises(JournalInUseError):  # noqa: PT012
        async with open_orchestrator(journal_url) as orchestrator:
            await orchestrator.run(agent, "first")
            take_over(postgres_server, journal_url)
            await orchestrator.run(agent, "second")
    assert asked == ["it"]


async def test_an_idle_writer_finds_out_by_its_renewal(
    postgres: str, postgres_server: PostgresServer
) -> None:
    with pytest.raises(JournalInUseError), trio.fail_after(20):  # noqa: PT012
        async with store_at(f"{postgres}&journal=one&lease=1").open_writer():
            take_over(postgres_server, postgres)
            await trio.sleep_forever()


async def test_a_lease_is_renewed_while_the_writer_is_idle(postgres: str) -> None:
    """It is renewed three times a lease, so no other process gets it."""
    url = f"{postgres}&journal=one&lease=1"
    async with store_at(url).open_writer() as journal:
        with psycopg.connect(postgres, autocommit=True) as connection:
            # Two leases by the clock of the database.
            await trio.to_thread.run_sync(lambda: connection.execute("SELECT pg_sleep(2)"))
        append(journal, [message("r_one")])
        await journal.wait_durable(1)
        with pytest.raises(JournalInUseError):
            async with store_at(url).open_writer():
                pass


@pytest.mark.parametrize("is_given", [True, False])
async def test_a_writer_is_called_by_the_name_of_its_machine(
    journal_url: str, is_given: bool
) -> None:
    """As facts call it: its network name may be that of any container."""
    environ = {"ORCHESTRATOR_HOST": "south" if is_given else "north"}
    machine = Machine(host="north" if is_given else None, environ=environ)
    async with open_orchestrator(journal_url, machine=machine):
        writer = store_at(journal_url).writer()
        assert writer is not None
        assert writer.host == "north"


async def test_many_that_want_a_journal_at_once_get_it_one_at_a_time(journal_url: str) -> None:
    inside = refused = most = 0

    async def want() -> None:
        nonlocal inside, refused, most
        try:
            async with store_at(journal_url).open_writer():
                inside += 1
                most = max(most, inside)
                await trio.testing.wait_all_tasks_blocked()
                inside -= 1
        except JournalInUseError:
            refused += 1

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(want)
    assert most == 1
    assert refused < 4


async def test_a_process_stopped_past_its_lease_writes_no_entry(
    postgres: str, postgres_server: PostgresServer
) -> None:
    """SIGSTOP, another process takes over, SIGCONT: one error, and not one statement."""
    url = f"{postgres}&journal=one&lease=1"
    with start(HOLD, url) as first:
        run = read_line(first)
        first.send_signal(signal.SIGSTOP)
        await wait_expired(url)
        async with open_orchestrator(url) as later:
            assert later.runs == [run]
            assert (await later.run(worker(), "after")).output == "done"
            before = entries_in(postgres_server, url)
            assert first.stdin is not None
            first.stdin.write("go on\n")
            first.stdin.flush()
            first.send_signal(signal.SIGCONT)
            assert read_line(first) == "JournalInUseError"
            assert await trio.to_thread.run_sync(first.wait) == 2
            assert entries_in(postgres_server, url) == before
            assert (await later.run(worker(), "again")).output == "done"
    assert_whole(url)


async def test_the_journal_of_a_killed_process_is_taken_over_after_its_lease(postgres: str) -> None:
    url = f"{postgres}&journal=one&lease=1"
    with start(HOLD, url) as first:
        run = read_line(first)
        first.kill()
        first.wait()
        with pytest.raises(JournalInUseError, match=f"process {first.pid} is writing"):
            async with store_at(url).open_writer():
                pass
        await wait_expired(url)
        async with open_orchestrator(url) as later:
            assert later.runs == [run]
    assert_whole(url)


async def test_a_connection_that_is_ended_is_opened_again(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    database = journal_url.partition("@/")[2].partition("?")[0]
    async with open_orchestrator(journal_url) as orchestrator:
        for _ in range(3):
            postgres_server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE datname = '{database}' AND application_name LIKE 'orchestrator%'"
            )
            assert (await orchestrator.run(editor(), "go")).output == "merged"
    assert_whole(journal_url)


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    " AND application_name LIKE 'orchestrator%' AND datname = current_database()"
)


def wait_for_statements(url: str, count: int) -> None:
    """Wait until so many statements of ours wait for a lock."""
    # Outside of a transaction, in which the activity of others stands still.
    with psycopg.connect(url, autocommit=True) as watcher:
        while watcher.execute(WAITING).fetchone() != (count,):
            trio.from_thread.check_cancelled()


async def test_a_database_that_goes_away_while_a_journal_is_taken_may_be_back_soon(
    journal_url: str,
) -> None:
    """A standby waits for it, then, as it does for one that it cannot connect to."""
    async with open_orchestrator(journal_url):
        pass
    url = parse_address(journal_url).url
    with psycopg.connect(url) as holder, trio.fail_after(60):
        holder.execute("LOCK TABLE orchestrator.journals IN ACCESS EXCLUSIVE MODE")
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def take() -> None:
                with pytest.raises(UnreachableError) as raised:
                    async with open_orchestrator(journal_url):
                        pass
                assert not raised.value.lasting

            await trio.to_thread.run_sync(wait_for_statements, url, 1)
            holder.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )


async def test_a_commit_that_goes_on_after_its_connection_broke_happens_once(
    journal_url: str,
) -> None:
    """The server notices late that the client is gone, and commits beside the next attempt."""
    url = parse_address(journal_url).url

    wait_for_attempts = partial(wait_for_statements, url)
    store = store_at(journal_url)
    async with store.open_writer() as journal:
        assert isinstance(journal, PostgresJournal)
        fenced: Any = vars(journal)["_connection"]
        # The lock on the row holds both attempts back.
        with psycopg.connect(url) as holder:
            holder.execute("SELECT FROM orchestrator.journals FOR UPDATE")
            append(journal, [message("r_one")])
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(journal.wait_durable, 1)
                    await trio.to_thread.run_sync(wait_for_attempts, 1)
                    fenced.hang_up()
                    await trio.to_thread.run_sync(wait_for_attempts, 2)
                    holder.commit()
        append(journal, [message("r_one")], first=2)
        await journal.wait_durable(2)
    assert [it.seq for it in all_entries(store)] == [1, 2]


async def test_a_commit_with_a_lost_answer_happens_once(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    """The statement is executed; the connection breaks before the answer."""
    store = store_at(journal_url)
    async with store.open_writer() as journal:
        assert isinstance(journal, PostgresJournal)
        fenced: Any = vars(journal)["_connection"]

        class LosesAnswers:
            """Executes the next statement, and loses the answer."""

            def __init__(self, real: Any) -> None:
                self._real = real

            def __getattr__(self, name: str) -> Any:
                return getattr(self._real, name)

            def execute(self, *args: Any, **options: Any) -> None:
                self._real.execute(*args, **options)
                self._real.close()
                raise psycopg.OperationalError("the connection is lost")

        for seq in (1, 2, 3):
            append(journal, [message("r_one")], first=seq)
            journal.append_audit(1.0, AUDIT)
            if seq == 2:
                await journal.wait_durable(1)
                fenced._connection = LosesAnswers(fenced._connection)
            await journal.wait_durable(seq)
    assert [it.seq for it in all_entries(store)] == [1, 2, 3]
    with store.open_reader() as reader:
        assert [it.seq for it in reader.audit().rows] == [1, 2, 3]
        assert reader.audit().find_break() is None


SLOW_COMMITS = """
CREATE FUNCTION wait_to_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow_commits AFTER UPDATE ON orchestrator.journals
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_to_commit()
"""


async def test_a_cancelled_prune_that_the_database_goes_on_with_takes_no_fact(
    journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "CANCEL_SECONDS", 0.1)
    url = parse_address(journal_url).url
    wait_for_attempts = partial(wait_for_statements, url)
    store = store_at(journal_url)
    async with store.open_writer() as journal:
        append(journal, [message("r_one")])
        journal.append_audit(1.0, AUDIT)
        await journal.wait_durable(1)
        with psycopg.connect(url, autocommit=True) as holder:
            holder.execute(SLOW_COMMITS)
            holder.execute("SELECT pg_advisory_lock(1)")
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(prune_one, journal, "r_one")
                    await trio.to_thread.run_sync(wait_for_attempts, 1)
                    nursery.cancel_scope.cancel()
                append(journal, [message("r_two")], first=2)
                journal.append_audit(2.0, AUDIT)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(journal.wait_durable, 2)
                    await trio.to_thread.run_sync(wait_for_attempts, 2)
                    holder.execute("SELECT pg_advisory_unlock(1)")
    with store.open_reader() as reader:
        assert reader.audit().find_break() is None
        assert [it.seq for it in reader.entries(SessionId("r_two"))] == [2]


async def prune_one(journal: Journal, session: str) -> None:
    await journal.prune(
        before=0, release=lambda _: True, only=SessionId(session), audit=(1.5, AUDIT)
    )


@pytest.fixture(scope="module")
def own_server() -> Generator[PostgresServer]:
    """A server that tests of this module may stop."""
    require_postgres()
    with open_postgres(tcp=True) as server:
        yield server


async def test_an_outage_is_survived_and_reported_once(
    own_server: PostgresServer, caplog: pytest.LogCaptureFixture, away: trio.Event
) -> None:
    with own_server.new_database() as database:
        url = f"{database}&journal=one&lease=0.5"
        async with open_orchestrator(url) as orchestrator:
            await orchestrator.run(editor(), "go")
            own_server.stop("immediate")
            outcome: list[object] = []

            async def run() -> None:
                outcome.append((await orchestrator.run(editor(), "go")).output)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await away.wait()
                # Longer than the lease: the time itself is tested.
                await trio.sleep(0.6)
                assert outcome == []
                await trio.to_thread.run_sync(own_server.start)
            assert outcome == ["merged"]
        assert caplog.text.count("waiting for it") == 1
        assert caplog.text.count("it is back") == 1
        assert_whole(url)


async def test_an_outage_does_not_block_a_shutdown(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "FLUSH_SECONDS", 0.2)
    with own_server.new_database() as database:
        with (  # noqa: PT012
            pytest.raises(JournalError, match="did not take the remaining entries"),
            trio.fail_after(30),
        ):
            async with store_at(f"{database}&journal=one").open_writer() as journal:
                own_server.stop("immediate")
                append(journal, [message("r_one")])
        own_server.start()
        # Nothing was durable, and nothing is half there.
        async with store_at(f"{database}&journal=two").open_writer():
            assert journals_at(database).find(message("r_one").session) is None


@pytest.mark.parametrize("is_renewed", [False, True])
async def test_a_database_that_never_answers_does_not_keep_a_process_that_closes(
    own_server: PostgresServer, is_renewed: bool
) -> None:
    with own_server.new_database() as database, trio.fail_after(60):
        lease = 0.3 if is_renewed else 600
        store = store_at(f"{database}&journal=one&lease={lease}")
        with ExitStack() as silence:
            async with store.open_writer() as journal:
                append(journal, [message("r_one")])
                await journal.wait_durable(1)
                silence.enter_context(own_server.silent())
                # By then a renewal waits for its answer.
                await trio.sleep(0.3)


async def test_a_password_that_is_changed_ends_the_writer_with_a_sentence(
    own_server: PostgresServer,
) -> None:
    own_server.execute("CREATE ROLE ann LOGIN PASSWORD 'first-secret'")
    own_server.execute("CREATE DATABASE anns OWNER ann")
    url = own_server.url("anns", user="ann", password="first-secret", tcp=True)
    with pytest.raises(JournalError, match="password authentication failed") as caught:  # noqa: PT012
        async with open_orchestrator(f"{url}?journal=one") as orchestrator:
            await orchestrator.run(worker(), "go")
            own_server.execute(
                "ALTER ROLE ann PASSWORD 'second-secret'",
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'anns'",
            )
            await orchestrator.run(worker(), "go")
    assert "secret" not in str(caught.value)


async def test_a_database_that_takes_no_more_ends_the_writer_with_a_sentence(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    database = journal_url.partition("@/")[2].partition("?")[0]
    with pytest.raises(JournalError, match="No space left on device"):  # noqa: PT012
        async with store_at(journal_url).open_writer() as journal:
            append(journal, [message("r_one")])
            await journal.wait_durable(1)
            postgres_server.execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$"
                " BEGIN RAISE EXCEPTION 'could not extend file: No space left on device'"
                " USING ERRCODE = '53100'; END $$",
                "CREATE TRIGGER full_disk BEFORE INSERT ON orchestrator.entries"
                " FOR EACH ROW EXECUTE FUNCTION full_disk()",
                database=database,
            )
            append(journal, [message("r_one")], first=2)
            await journal.wait_durable(2)
    postgres_server.execute("DROP TRIGGER full_disk ON orchestrator.entries", database=database)
    store = store_at(journal_url)
    assert store.writer() is None
    async with store.open_writer() as journal:
        assert (await journal.read(Rules())).last_seq == 1
