"""The export of the audit to a file and to syslog, with real receivers on this machine."""

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from orchestrator.ports.errors import ServerSetupError
from orchestrator.ports.journals import AuditEvent
from orchestrator.products.server import audit_export
from orchestrator.products.server.audit_export import AuditExport, open_export, receiver_at
from tests.server.server_process import AGENTS, server_process

pytestmark = pytest.mark.realtime

MESSAGE = re.compile(
    rb"<(?P<priority>\d+)>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"
    rb" (?P<host>[!-~]+) orchestrator (?P<process>\d+) (?P<action>[!-~]{1,32}) - (?P<json>{.*})",
    re.DOTALL,
)


def event(number: int, outcome: str = "accepted") -> AuditEvent:
    return AuditEvent(actor="key:ann", action="create_run", target=f"r_{number}", outcome=outcome)


def put(export: AuditExport, *numbers: int) -> None:
    for number in numbers:
        export.put("journal.db", 1_700_000_000.5, event(number))


async def wait_until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not is_so():  # noqa: ASYNC110 (a receiver tells no one)
            await trio.sleep(0.01)


def targets_in(file: Path) -> list[str]:
    if not file.exists():
        return []
    return [json.loads(it)["target"] for it in file.read_text().splitlines()]


async def test_a_file_gets_json_lines_also_after_it_was_rotated(tmp_path: Path) -> None:
    file, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    async with open_export(receiver_at(str(file)), print) as export:
        put(export, 1, 2)
        await wait_until(lambda: targets_in(file) == ["r_1", "r_2"])
        file.rename(old)
        put(export, 3)
        await wait_until(lambda: targets_in(file) == ["r_3"])
        put(export, 4)

    assert targets_in(old) == ["r_1", "r_2"]
    assert targets_in(file) == ["r_3", "r_4"]
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text().splitlines()[0]) == {
        "at": 1_700_000_000.5,
        "actor": "key:ann",
        "action": "create_run",
        "owner": "",
        "target": "r_3",
        "outcome": "accepted",
        "peer": "",
        "count": 1,
        "journal": "journal.db",
    }


@pytest.mark.parametrize("kind", ["unix", "udp", "tcp"])
async def test_syslog_gets_messages_of_rfc_5424(kind: str, tmp_path: Path) -> None:
    with opened_receiver(kind, tmp_path) as (listener, address):
        async with open_export(receiver_at(address), print) as export:
            put(export, 1)
            export.put("", 0, event(2, outcome="403"))
        messages = await trio.to_thread.run_sync(received, listener, kind, 2)

    first, second = (MESSAGE.fullmatch(it) for it in messages)
    assert first is not None
    assert second is not None
    assert (first["priority"], second["priority"]) == (b"110", b"108")
    assert first["time"] == b"2023-11-14T22:13:20.500000Z"
    assert first["action"] == b"create_run"
    assert [json.loads(it["json"])["target"] for it in (first, second)] == ["r_1", "r_2"]


def opened_receiver(kind: str, folder: Path) -> "Opened":
    return Opened(kind, folder)


class Opened:
    """A socket that receives syslog messages, and its address."""

    def __init__(self, kind: str, folder: Path) -> None:
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        self.listener = socket.socket(
            family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
        )
        self.listener.settimeout(30)
        if kind == "unix":
            self.listener.bind(str(folder / "log"))
            self.address = f"syslog:{folder / 'log'}"
            return
        self.listener.bind(("127.0.0.1", 0))
        name = "syslog+tcp" if kind == "tcp" else "syslog"
        self.address = f"{name}://127.0.0.1:{self.listener.getsockname()[1]}"
        if kind == "tcp":
            self.listener.listen()

    def __enter__(self) -> tuple[socket.socket, str]:
        return self.listener, self.address

    def __exit__(self, *_: object) -> None:
        self.listener.close()


def received(listener: socket.socket, kind: str, many: int) -> list[bytes]:
    """Return the next messages, without their lengths."""
    if kind != "tcp":
        return [listener.recv(65_536) for _ in range(many)]
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as stream:
        return [frame(stream.read, stream.read) for _ in range(many)]


def frame(read_one: Callable[[int], bytes], read: Callable[[int], bytes]) -> bytes:
    length = b""
    while (digit := read_one(1)) != b" ":
        length += digit
    return read(int(length))


async def test_an_outage_delays_no_event_and_dropped_ones_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_export, "MOST_WAITING", 5)
    reports: list[str] = []
    place = tmp_path / "log"
    async with open_export(receiver_at(f"syslog:{place}"), reports.append) as export:
        put(export, *range(12))
        await wait_until(lambda: bool(reports))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(place))
            listener.settimeout(30)
            read = [
                json.loads((await trio.to_thread.run_sync(listener.recv, 65_536)).split(b" - ")[1])
                for _ in range(6)
            ]
            put(export, 12)
            after = await trio.to_thread.run_sync(listener.recv, 65_536)

    assert [it["target"] for it in read[:5]] == [f"r_{number}" for number in range(5)]
    assert (read[5]["action"], read[5]["count"]) == ("audit.dropped", 7)
    assert b"r_12" in after
    assert "cannot be exported" in reports[0]
    assert any("7 events of the audit were dropped" in it for it in reports)


async def test_an_event_after_a_line_that_was_cut_off_has_a_line_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text('{"at":17000')
    file.chmod(0o600)
    async with open_export(receiver_at(str(file)), print) as export:
        put(export, 1)

    cut, whole = file.read_text().splitlines()
    assert (cut, json.loads(whole)["target"]) == ('{"at":17000', "r_1")


async def test_a_file_that_others_can_write_gets_no_event(tmp_path: Path) -> None:
    file, told = tmp_path / "audit.jsonl", list[str]()
    file.touch()
    file.chmod(0o666)
    async with open_export(receiver_at(str(file)), told.append) as export:
        put(export, 1)
        await wait_until(lambda: bool(told))

    assert "other users may write it" in told[0]
    assert file.read_text() == ""


async def test_events_that_were_not_exported_are_counted_at_the_end(tmp_path: Path) -> None:
    reports: list[str] = []
    async with open_export(receiver_at(f"syslog:{tmp_path / 'none'}"), reports.append) as export:
        put(export, 1, 2)

    assert "2 events of the audit were not exported; the journal has them" in reports


@pytest.mark.parametrize(
    "address", ["", "syslog://host", "syslog+tcp://:1", "/none/file", "x://y:1"]
)
def test_an_unusable_address_is_refused(address: str) -> None:
    with pytest.raises(ServerSetupError, match="--audit-export"):
        receiver_at(address)


async def test_serve_exports_its_audit(tmp_path: Path) -> None:
    file = tmp_path / "exported.jsonl"
    async with server_process(tmp_path, AGENTS, "--audit-export", str(file)) as server:
        async with server.http() as http:
            asked = {"model": "worker", "input": "go"}
            assert (await http.post("/v1/runs", json=asked)).status_code == 202
        assert await server.terminate() == 0

    actions = [json.loads(it)["action"] for it in file.read_text().splitlines()]
    assert actions == ["server.start", "create_run", "server.stop"]
