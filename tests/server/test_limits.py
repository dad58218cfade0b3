"""Limits of keys: requests a second, runs at once, tokens and dollars a day; wrong keys wait."""

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import trio

from orchestrator import Machine, MemoryJournal, Orchestrator, open_orchestrator
from orchestrator.agents import Agent, Price, ScriptedModel, Usage
from orchestrator.kernel.journal.journal import Journal
from orchestrator.products.server.app import application
from orchestrator.products.server.keys.changes import add_key
from orchestrator.products.server.keys.file import FILE
from orchestrator.products.server.keys.key import KeyLimits
from orchestrator.products.server.keys.wrong_keys import (
    FORGET_SECONDS,
    FREE,
    LONGEST_SECONDS,
    MOST_PEERS,
    WrongKeys,
)
from orchestrator.products.server.quotas import TokenBucket, too_many
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import Settings
from tests.kit import hand_on, worker
from tests.orchestrator.budgets_kit import Meter, chatty, lead
from tests.server.kit import TOKEN
from tests.server.runs_kit import problem
from tests.server.server_process import PATIENCE, server_process

DAY = 24 * 3600
ASK = {"model": "worker", "messages": [{"role": "user", "content": "go"}]}


@attrs.frozen(kw_only=True)
class Limited:
    """A server without a socket, on the jumping clock, and its keys."""

    orchestrator: Orchestrator
    http: httpx2.AsyncClient
    file: Path

    def key(self, name: str, owner: Any = None, **limits: Any) -> dict[str, str]:
        """Make a key, and return the header of its requests."""
        now = self.orchestrator.now()
        _, token = add_key(self.file, name, owner=owner, now=now, limits=KeyLimits(**limits))
        return {"authorization": f"Bearer {token}"}

    async def chat(self, key: dict[str, str], model: str = "worker") -> httpx2.Response:
        return await self.http.post(
            "/v1/chat/completions", json={**ASK, "model": model}, headers=key
        )

    async def begin(self, key: dict[str, str], model: str) -> httpx2.Response:
        return await self.http.post("/v1/runs", json={"agent": model, "input": "go"}, headers=key)

    async def wait_idle(self) -> None:
        seen = 0
        while any(
            not it.has_nothing_pending for it in self.orchestrator.read.records.sessions.values()
        ):
            seen = await self.orchestrator.wait_changed(after=seen)

    def used_today(self, name: str) -> int:
        """Return how many tokens the newest account of a key has paid for."""
        accounts = self.orchestrator.read.records.accounts
        return [it.used.tokens for id_, it in accounts.items() if f":{name}:" in id_][-1]


@asynccontextmanager
async def limited(
    *agents: Agent[Any], folder: Path, journal: str | Path | Journal = ":memory:"
) -> AsyncGenerator[Limited]:
    file = folder / "keys.json"
    settings = Settings(token=TOKEN, keys=file)
    async with (
        open_orchestrator(journal, machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {it.name: it for it in agents}, settings) as state,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(application(state)), base_url="http://test", timeout=None
        ) as http,
    ):
        yield Limited(orchestrator=orchestrator, http=http, file=file)


async def test_the_requests_of_a_key_are_limited_per_second(tmp_path: Path) -> None:
    async with limited(worker(), folder=tmp_path) as server:
        ann = server.key("ann", requests_per_second=2)
        bob = server.key("bob", requests_per_second=2)

        async def ask(key: dict[str, str]) -> httpx2.Response:
            return await server.http.get("/v1/models", headers=key)

        assert [(await ask(ann)).status_code for _ in range(3)] == [200, 200, 429]
        refused = await ask(ann)
        assert problem(refused)["code"] == "rate_limit_exceeded"
        assert refused.headers["retry-after"] == "1"
        assert (await ask(bob)).status_code == 200
        await trio.sleep(0.5)
        assert [(await ask(ann)).status_code for _ in range(2)] == [200, 429]
        default = {"authorization": f"Bearer {TOKEN}"}
        assert {(await ask(default)).status_code for _ in range(50)} == {200}


def test_a_bucket_saves_up_for_a_second_and_no_longer() -> None:
    bucket = TokenBucket(0.5, now=0)
    assert bucket.take(0) == 0
    assert bucket.take(0) == 2
    assert not bucket.is_full(1)
    assert bucket.is_full(2)
    assert bucket.take(1_000) == 0
    assert bucket.take(1_001) == 1


def test_a_clock_that_is_set_back_locks_no_key_out() -> None:
    bucket = TokenBucket(1, now=10_000)
    assert bucket.take(10_000) == 0
    assert bucket.take(100) == 1
    assert bucket.take(101) == 0


def test_a_wait_has_an_end_that_can_be_told() -> None:
    bucket = TokenBucket(1e-320, now=0)
    assert bucket.take(0) == 0
    refused = too_many("", code="", type_="", seconds=bucket.take(0))
    assert refused.response().headers["retry-after"] == "31536000"


async def test_the_runs_of_a_key_are_limited_at_once(tmp_path: Path) -> None:
    slow = worker("slow", seconds=1_000)
    async with limited(worker(), slow, folder=tmp_path) as server:
        ann, bob = server.key("ann", runs_at_once=2), server.key("bob")
        runs = [(await server.begin(ann, "slow")).json()["id"] for _ in range(2)]
        refused = await server.begin(ann, "slow")
        assert refused.status_code == 429
        assert problem(refused)["code"] == "too_many_runs"
        assert int(refused.headers["retry-after"]) >= 1
        assert (await server.chat(ann)).status_code == 429
        assert (await server.begin(bob, "slow")).status_code == 202
        assert len(server.orchestrator.runs) == 3, "what is refused leaves no trace"
        await server.http.post(f"/v1/runs/{runs[0]}/cancel", headers=ann)
        assert (await server.chat(ann)).status_code == 200

        made = {"model": "worker"}
        talk = await server.http.post("/v1/sessions", json=made, headers=ann)
        assert talk.status_code == 201, "a conversation at rest is no run"
        third = await server.begin(ann, "slow")
        path = f"/v1/sessions/{talk.json()['id']}/messages"
        said = await server.http.post(path, json={"text": "hi"}, headers=ann)
        assert (third.status_code, said.status_code) == (202, 429)


async def test_a_turn_counts_for_the_key_of_the_message_that_began_it(tmp_path: Path) -> None:
    slow = worker("slow", seconds=1_000)
    async with limited(slow, folder=tmp_path) as server:
        ann = server.key("ann", "us", runs_at_once=2)
        bob = server.key("bob", "us", runs_at_once=1)

        async def tell(session: str, key: dict[str, str]) -> int:
            path = f"/v1/sessions/{session}/messages"
            sent = await server.http.post(path, json={"text": "hi"}, headers=key)
            return sent.status_code

        opened = [
            await server.http.post("/v1/sessions", json={"model": "slow"}, headers=ann)
            for _ in range(4)
        ]
        first, *others = [it.json()["id"] for it in opened]
        assert [await tell(it, bob) for it in (first, *others)] == [202, 429, 429, 429]
        assert await tell(first, bob) == 202, "that is one turn after the other"
        assert [await tell(it, ann) for it in others] == [202, 202, 429]
        assert await tell(others[0], bob) == 429, "it would be the next turn there"
        assert await tell(first, ann) == 429


async def test_runs_that_a_restart_goes_on_with_count(tmp_path: Path) -> None:
    journal = MemoryJournal()
    slow = worker("slow", seconds=1_000)
    async with limited(slow, folder=tmp_path, journal=journal) as server:
        ann = server.key("ann", runs_at_once=1)
        assert (await server.begin(ann, "slow")).status_code == 202
    async with limited(slow, folder=tmp_path, journal=journal) as server:
        assert (await server.begin(ann, "slow")).status_code == 429
        await server.wait_idle()
        assert (await server.begin(ann, "slow")).status_code == 202


PRICE = Price(input=1, output=10)


def priced(meter: Meter, name: str = "worker") -> Agent:
    model = ScriptedModel.always("x" * 400, 1, price=PRICE)
    return attrs.evolve(meter.worker(), name=name, model=meter.on(model))


@pytest.mark.parametrize("limits", [{"tokens_per_day": 900}, {"dollars_per_day": 0.006}])
async def test_the_budget_of_a_day_holds_across_runs_restarts_and_a_fan_out(
    tmp_path: Path, limits: dict[str, float]
) -> None:
    """The sum is taken outside, by the model itself."""
    meter, journal = Meter(), MemoryJournal()
    top = lead(meter, 20, priced(meter))

    def is_within() -> bool:
        tokens = limits.get("tokens_per_day", 10**9)
        dollars = limits.get("dollars_per_day", 10**9)
        used = meter.used
        return used.tokens <= tokens and used.micro_usd <= dollars * 1_000_000

    async with limited(priced(meter), top, folder=tmp_path, journal=journal) as server:
        ann = server.key("ann", **limits)
        first = await server.chat(ann)
        assert first.status_code == 200, first.text
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(server.chat, ann)
                nursery.start_soon(server.begin, ann, "top")
        await server.wait_idle()
        assert is_within()
        before = meter.calls
    async with limited(priced(meter), top, folder=tmp_path, journal=journal) as server:
        for _ in range(3):
            await server.chat(ann)
        assert is_within()
        assert meter.calls - before <= 2, "the day's use is known after a restart"
        bob = server.key("bob", **limits)
        assert (await server.chat(bob)).status_code == 200
        await trio.sleep(DAY)
        again = await server.chat(ann)
        assert again.status_code == 200, "a new day has a new budget"


async def test_a_used_up_day_is_429_until_midnight_utc(tmp_path: Path) -> None:
    meter = Meter()
    async with limited(meter.worker(), folder=tmp_path) as server:
        probe = await server.chat({"authorization": f"Bearer {TOKEN}"})
        one = probe.json()["usage"]["total_tokens"]
        ann = server.key("ann", tokens_per_day=one // 2)
        unfit = await server.chat(ann)
        assert unfit.status_code == 429, "no call fits into what is left"
        assert problem(unfit)["type"] == "insufficient_quota"
        assert unfit.headers["x-should-retry"] == "false"
        wait = int(unfit.headers["retry-after"])
        assert 0 < wait <= DAY
        assert (server.orchestrator.now() + wait) % DAY < 2
        for account in server.orchestrator.read.records.accounts.values():
            account.charge(Usage(input_tokens=one))
        answer = await server.chat(ann)
        assert answer.status_code == 429
        assert len(server.orchestrator.runs) == 2, "it does not begin any more"
        assert problem(answer)["code"] == "insufficient_quota"
        wait = int(answer.headers["retry-after"])
        assert 0 < wait <= DAY
        assert (server.orchestrator.now() + wait) % DAY < 2


async def test_a_turn_begun_by_a_notice_is_paid_by_the_key_of_the_last_message(
    tmp_path: Path,
) -> None:
    """A turn that a notice begins has no request; its key pays all the same."""
    meter = Meter()
    agent = chatty(meter, meter.worker(seconds=10))
    async with limited(agent, folder=tmp_path) as server:
        ann = server.key("ann", tokens_per_day=1_000_000)
        made = await server.http.post("/v1/sessions", json={"model": "chatty"}, headers=ann)
        path = f"/v1/sessions/{made.json()['id']}/messages"
        for _ in range(2):
            before = meter.used.tokens
            said = await server.http.post(path, json={"text": "dig"}, headers=ann)
            assert said.status_code == 202
            await server.wait_idle()
            assert meter.calls % 4 == 0, "a turn with a call, the task, and its news"
            assert server.used_today("ann") == meter.used.tokens - before
            await trio.sleep(DAY)
    accounts = server.orchestrator.read.records.accounts
    assert len([it for it in accounts if ":ann:" in it]) == 2


async def test_a_key_without_a_limit_does_not_use_the_day_of_another(tmp_path: Path) -> None:
    meter = Meter()
    async with limited(meter.worker(), folder=tmp_path) as server:
        ann = server.key("ann", tokens_per_day=1_000_000)
        made = await server.http.post("/v1/sessions", json={"model": "worker"}, headers=ann)
        path = f"/v1/sessions/{made.json()['id']}/messages"
        await server.http.post(path, json={"text": "one"}, headers=ann)
        await server.wait_idle()
        used = server.used_today("ann")
        default = {"authorization": f"Bearer {TOKEN}"}
        said = await server.http.post(path, json={"text": "two"}, headers=default)
        assert said.status_code == 202
        await server.wait_idle()
        assert meter.used.tokens > used == server.used_today("ann")


async def test_a_run_that_meets_the_limit_in_its_middle_ends_over_budget(tmp_path: Path) -> None:
    meter = Meter()
    steps: list[Any] = [hand_on(str(number)) for number in range(50)]
    top = Agent("top", model=meter.on(ScriptedModel([*steps, "end"])), delegates=[meter.worker()])
    async with limited(top, folder=tmp_path) as server:
        ann = server.key("ann", tokens_per_day=5_000)
        run = (await server.begin(ann, "top")).json()["id"]
        await server.wait_idle()
        shown = (await server.http.get(f"/v1/runs/{run}", headers=ann)).json()
        assert shown["status"] == "failed"
        assert "over_budget" in str(shown["error"])
        assert "of key ann on" in str(shown["error"])
        assert meter.used.tokens <= 5_000


def test_wrong_keys_of_a_peer_wait_longer_and_longer() -> None:
    wrong = WrongKeys()
    waits = [wrong.note("10.0.0.1", 0) for _ in range(FREE + 12)]
    assert waits[:FREE] == [0] * FREE
    assert waits[FREE : FREE + 5] == [1, 2, 4, 8, 16]
    assert waits[-1] == LONGEST_SECONDS
    assert wrong.note("10.0.0.2", 0) == 0
    assert wrong.note("10.0.0.1", FORGET_SECONDS + 1) == 0
    for number in range(100_000):
        wrong.note(str(number), 0)
    assert len(wrong) == MOST_PEERS


async def test_wrong_keys_are_limited_and_right_ones_are_unaffected(tmp_path: Path) -> None:
    async with limited(worker(), folder=tmp_path) as server:
        ann = server.key("ann")
        wrong = {"authorization": "Bearer wrong"}
        seen = [(await server.http.get("/v1/models", headers=wrong)) for _ in range(FREE + 3)]
        assert [it.status_code for it in seen] == [401] * FREE + [429] * 3
        assert [it.headers["retry-after"] for it in seen[FREE:]] == ["1", "2", "4"]
        assert problem(seen[-1])["code"] == "too_many_wrong_keys"
        assert seen[-1].headers["connection"] == "close"
        assert (await server.http.get("/v1/models")).status_code == 401
        assert (await server.http.get("/v1/models", headers=ann)).status_code == 200


BILLED_TEAM = """
import math
import os
import pathlib
import trio
from orchestrator.agents import Agent, Price, ScriptedModel, ToolMessage
from orchestrator.testing.scripts import hand_on

PRICE = Price(input=1, output=10)

class Provider:
    # Bills each request when it arrives, and answers only so many.
    name, price = "provider", PRICE

    def __init__(self, say, most=math.inf):
        self.model = ScriptedModel.always(say, price=PRICE)
        self.count_tokens = self.model.count_tokens
        self.left = most

    async def answer(self, request):
        answer = await self.model.answer(request)
        bill.write(f"{answer.usage.micro_usd}\\n")
        self.left -= 1
        if self.left < 0:
            await trio.sleep_forever()
        return answer

def lead(transcript):
    if any(isinstance(it, ToolMessage) for it in transcript):
        return "end"
    return hand_on(*map(str, range(5)), background=True)

bill = open(os.environ["BILL"], "a", buffering=1)
answered = int(pathlib.Path("answered").read_text())
helper = Agent("helper", model=Provider("x" * 60_000, answered))
top = Agent("top", model=Provider(lead), delegates=[helper])
"""


@pytest.mark.realtime
async def test_a_killed_server_keeps_the_use_of_the_day(tmp_path: Path) -> None:
    """The provider also bills the calls that the kill cut off."""
    bill, answered = tmp_path / "bill", tmp_path / "answered"
    os.mkfifo(bill)
    limits = KeyLimits(dollars_per_day=4)
    _, token = add_key(tmp_path / FILE, "ann", now=time.time(), limits=limits)
    run, ask = {"agent": "top", "input": "go"}, {**ASK, "model": "helper"}
    environ = {"BILL": str(bill), "ORCHESTRATOR_API_KEY": "9f8e7d6c5b4a39281706"}
    answered.write_text("4")
    billed: list[int] = []
    async with (
        # Open for both directions: it does not end while no server writes.
        trio.lowlevel.FdStream(os.open(bill, os.O_RDWR)) as bills,
        server_process(tmp_path, BILLED_TEAM, environ=environ) as server,
    ):

        async def post(path: str, body: Any) -> httpx2.Response:
            async with server.http() as http:
                http.headers["authorization"] = f"Bearer {token}"
                return await http.post(path, json=body)

        async def read_bill() -> None:
            with trio.fail_after(PATIENCE):
                billed.extend(map(int, (await bills.receive_some()).split()))

        assert (await post("/v1/chat/completions", ask)).status_code == 200
        runs = [(await post("/v1/runs", run)).json()["id"] for _ in range(2)]
        while sum(cost > 100_000 for cost in billed) < 1 + 2 * 5:
            await read_bill()
        # Four helpers were answered, and seven are under way.
        await server.kill()
        used = sum(billed)
        answered.write_text("1000")
        await server.start()
        async with server.http() as http:
            for id_ in runs:
                await http.get(f"/v1/runs/{id_}/events")
        while (last := await post("/v1/chat/completions", ask)).status_code == 200:
            pass
        assert last.status_code == 429
        await server.kill()
        await read_bill()
    assert 1_500_000 < used < 3_000_000 < sum(billed) <= 4_000_000
