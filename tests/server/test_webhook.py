"""Webhooks: every reply is told, signed, again if it must be, and known by one id."""

import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import h11
import openai
import pytest
import trio

from orchestrator import Machine
from orchestrator.agents import DefinitionError
from orchestrator.composition import open_orchestrator
from orchestrator.delegation import Reply, SessionRecord
from orchestrator.delegation.events import DeliveryFailed
from orchestrator.kernel.errors import ServerSetupError
from orchestrator.kernel.journal import session_cache
from orchestrator.kernel.journal.sqlite.journal import read_sqlite_journal
from orchestrator.products.server.webhook import (
    SECRET,
    open_webhook,
    open_webhook_target,
    require_url,
    secret_for,
    webhook_signature,
)
from orchestrator.schedule import Job, open_schedule, require_jobs
from tests.kit import worker
from tests.server.kit import serving

pytestmark = pytest.mark.realtime

EVENT = b'{"id": "msg_1", "object": "event", "type": "response.completed", "data": {"id": "r"}}'


@attrs.frozen
class Got:
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Takes webhooks, and answers with what the test says."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses)
        send, self.got = trio.open_memory_channel[Got](math.inf)
        self._send = send
        self.url = ""

    async def take(self, stream: trio.SocketStream) -> None:
        parser = h11.Connection(h11.SERVER)
        headers: dict[str, str] = {}
        body = b""
        async with stream:
            while True:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    parser.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    headers = {k.decode(): v.decode() for k, v in event.headers}
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    break
            status = self._statuses.pop(0) if self._statuses else 204
            there = "Location: /elsewhere\r\n" if status == 302 else ""
            await stream.send_all(
                f"HTTP/1.1 {status} x\r\n{there}Content-Length: 0\r\n"
                "Connection: close\r\n\r\n".encode()
            )
        self._send.send_nowait(Got(headers, body))


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncGenerator[Receiver]:
    receiver = Receiver(*statuses)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, receiver.take, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        receiver.url = f"http://user:hunter2@127.0.0.1:{listener.socket.getsockname()[1]}/"
        yield receiver
        nursery.cancel_scope.cancel()


async def test_the_official_client_knows_it_for_ours(tmp_path: Path) -> None:
    secret = secret_for({}, tmp_path).value
    async with receiving() as receiver, open_webhook(receiver.url, secret) as push:
        async with serving(worker(says="found it"), push=push) as served:
            response = await served.openai.responses.create(
                model="worker", input="look", background=True
            )
            got = await receiver.got.receive()

    client = openai.OpenAI(api_key="none")
    event = client.webhooks.unwrap(got.body, got.headers, secret=secret)
    assert event.type == "response.completed"
    assert event.data.id == response.id
    assert event.data.model_dump()["text"] == "found it"
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(got.body + b" ", got.headers, secret=secret)
    client.close()


def test_two_secrets_both_sign_while_one_takes_the_place_of_the_other(tmp_path: Path) -> None:
    """A receiver knows one of them; the header is that of Standard Webhooks."""
    old = secret_for({}, tmp_path).value
    new = secret_for({}, tmp_path / "new").value
    file = tmp_path / "webhook_secret"
    file.write_text(f"{new}\n{old}\n")
    both = secret_for({}, tmp_path).value
    assert secret_for({SECRET: f" {new}  {old} "}, tmp_path).value == both
    now = int(time.time())
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(now),
        "webhook-signature": webhook_signature(both, "msg_1", now, EVENT),
    }

    assert len(headers["webhook-signature"].split()) == 2
    with openai.OpenAI(api_key="none") as client:
        for known in (old, new):
            client.webhooks.unwrap(EVENT, headers, secret=known)
    file.write_text(f"{new}\n{old}\n{old}\n")
    with pytest.raises(ServerSetupError):
        secret_for({}, tmp_path)
    with pytest.raises(ServerSetupError):
        secret_for({SECRET: f"{new} short"}, tmp_path)


def test_webhooks_beyond_this_machine_need_https_by_default() -> None:
    for url in ("http://127.0.0.1:1/", "http://[::1]/", "https://hooks.example/"):
        require_url(url)
    for url in ("http://hooks.example/", "http://10.0.0.1/", "http://0x7f.1/"):
        with pytest.raises(ServerSetupError, match="in the clear"):
            require_url(url)
        require_url(url, is_insecure=True)


async def test_a_refused_webhook_is_sent_again_under_the_same_id(tmp_path: Path) -> None:
    """A redirect is no success, either, and not followed."""
    secret = secret_for({}, tmp_path).value
    journal = tmp_path / "journal.db"
    async with receiving(503, 302) as receiver:
        async with open_webhook(receiver.url, secret) as push:
            async with serving(worker(), journal=journal, push=push) as served:
                started = await served.http.post(
                    "/v1/runs", json={"agent": "worker", "input": "go"}
                )
                assert started.status_code == 202, started.text
                got = [await receiver.got.receive() for _ in range(3)]

    assert len({it.headers["webhook-id"] for it in got}) == 1
    entries = await read_sqlite_journal(journal)
    failed = [e.event for e in entries if isinstance(e.event, DeliveryFailed)]
    assert [it.attempt for it in failed] == [1, 2]
    assert "answered with 503" in failed[0].error
    assert "answered with 302" in failed[1].error
    assert b"hunter2" not in journal.read_bytes()


async def test_the_reply_of_a_job_is_sent_to_its_url_and_signed(tmp_path: Path) -> None:
    secret = secret_for({}, tmp_path).value
    async with receiving(503) as receiver, open_webhook_target(secret) as target:
        url = receiver.url.replace("user:hunter2@", "")
        agent = worker(says="News.")
        job = Job("0 8 * * *", agent, "Write.", zone="UTC", deliver=f"webhook:{url}")
        targets = {"webhook": target}
        async with (
            open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator,
            open_schedule(orchestrator, [job], targets=targets) as scheduler,
        ):
            run = scheduler.run_now(scheduler.find(agent.name))
            first, got = [await receiver.got.receive() for _ in range(2)]

    assert first.headers["webhook-id"] == got.headers["webhook-id"] == f"msg_{run}_1"
    with openai.OpenAI(api_key="none") as client:
        event = client.webhooks.unwrap(got.body, got.headers, secret=secret)
    data = event.model_dump()["data"]
    assert (event.type, data["job"], data["text"]) == ("job.reply", "worker", "News.")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("hooks", "is not a URL that can be called"),
        ("ftp://hooks.example/", "is not a URL that can be called"),
        ("http://hooks.example/", "in the clear"),
        ("https://ann:hunter2@hooks.example/", "has a password"),
    ],
)
async def test_a_job_names_no_url_that_cannot_be_called_safely(
    tmp_path: Path, url: str, problem: str
) -> None:
    job = Job("0 8 * * *", worker(), "Write.", zone="UTC", deliver=f"webhook:{url}")
    async with open_webhook_target(secret_for({}, tmp_path).value) as target:
        with pytest.raises(DefinitionError, match=problem) as refused:
            require_jobs([job], {"webhook": target}, now=0.0)

    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("in_memory", [2_000, 0])
async def test_the_next_server_delivers_the_undelivered_webhooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(session_cache, "MAX_RESTING_TASKS", in_memory)
    secret = secret_for({}, tmp_path).value
    journal = tmp_path / "journal.db"
    async with receiving(500, 500) as receiver:
        async with open_webhook(receiver.url, secret) as push:
            async with serving(worker(), journal=journal, push=push) as served:
                for _ in range(2):
                    await served.http.post("/v1/runs", json={"agent": "worker", "input": "go"})
                first = [await receiver.got.receive() for _ in range(2)]
            async with serving(worker(), journal=journal, push=push):
                second = [await receiver.got.receive() for _ in range(2)]

    told = {it.headers["webhook-id"] for it in first}
    assert len(told) == 2
    assert told == {it.headers["webhook-id"] for it in second}


async def test_an_unreachable_webhook_is_named_without_its_secrets(tmp_path: Path) -> None:
    secret = secret_for({}, tmp_path).value
    journal = tmp_path / "journal.db"
    url = "http://user:hunter2@127.0.0.1:1/?token=hunter3"
    async with open_webhook(url, secret) as push:
        async with serving(worker(), journal=journal, push=push) as served:
            await served.http.post("/v1/runs", json={"agent": "worker", "input": "go"})
            with trio.fail_after(20), served.orchestrator.subscribe() as facts:
                seen = 0
                failed: list[DeliveryFailed] = []
                while not failed:
                    seen = await served.orchestrator.wait_changed(after=seen)
                    failed = [
                        entry.event
                        for entry, _ in facts.take()
                        if isinstance(entry.event, DeliveryFailed)
                    ]
    assert "127.0.0.1 cannot be reached" in failed[0].error
    assert "hunter" not in failed[0].error


async def test_a_session_that_began_without_a_webhook_keeps_its_inbox(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    pushed: list[Reply] = []
    has_pushed = trio.Event()

    async def push(session: SessionRecord, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        del session
        pushed.append(reply)
        has_pushed.set()

    async with serving(worker(), journal=journal) as served:
        opened = await served.http.post("/v1/sessions", json={"model": "worker"})
        old = f"/v1/sessions/{opened.json()['id']}"
        await served.http.post(f"{old}/messages", json={"text": "go"})
        waiting = await served.http.get(f"{old}/inbox?wait=30")
    async with serving(worker(), journal=journal, push=push) as served:
        started = await served.http.post(
            "/v1/runs",
            json={"agent": "worker", "input": "go"},
            headers={"X-Session-Chat-Id": "7", "X-Session-Platform": "telegram"},
        )
        with trio.fail_after(60):
            await has_pushed.wait()
        still_waiting = await served.http.get(f"{old}/inbox")

    assert len(waiting.json()["data"]) == 1
    assert still_waiting.json()["data"] == waiting.json()["data"]
    (reply,) = pushed
    assert reply.session == started.json()["id"]
    # A door finds the chat that the question came from.
    assert (reply.context["platform"], reply.context["chat_id"]) == ("telegram", "7")
