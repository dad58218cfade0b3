"""`python -m tests.orchestrator.budget_processes --seed 7 --rounds 100`: a budget of processes.

Four processes run trees of agents under the same common account. A provider outside of them counts
each request at once with the most that it could bill, and then with the real usage. It kills some
processes instead of answering, and some after the answer; others kill themselves after a fact. They
are started again. At no moment may the count exceed the budget. In the end no account may have less
than the provider, and without kills both are the same.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from orchestrator import JournalInUseError, budget, open_orchestrator
from orchestrator.agents import Agent, AssistantMessage, ModelRequest, Price, ToolCall, Usage
from orchestrator.backends import journals_at
from orchestrator.delegation import Rules
from orchestrator.delegation.amounts import NOTHING, Amounts
from orchestrator.kernel.journal.accounts import total_used
from orchestrator.kernel.journal.journal import Journal, restore_ledger
from orchestrator.testing import CrashingJournal
from tests.postgres import open_postgres

PROCESSES: Final = 4
RUNS: Final = 3
"""How many trees a process runs at once."""
ACCOUNT: Final = "b_common:team"
PRICE: Final = Price(input=3, output=15)
RETRY_SECONDS: Final = 0.05


class Asked(msgspec.Struct, frozen=True):
    """A request at the provider."""

    pid: int
    read: int
    most: int

    def amounts(self, written: int) -> Amounts:
        cost = PRICE.cost_of(input_tokens=self.read, output_tokens=written)
        return Amounts(calls=1, tokens=self.read + written, micro_usd=cost)


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a process, as its command line has it."""

    seed: int
    address: str
    journal: str
    provider: str
    calls: int
    usd: float
    kill_after: int = 0
    """The number of facts after which it kills itself; 0 is never."""


class RemoteModel:
    """A model whose provider is the process that watches."""

    name = "remote"
    price = PRICE

    def __init__(self, address: str, chance: random.Random) -> None:
        self._address = address
        self._chance = chance

    def count_tokens(self, request: ModelRequest) -> int:
        return 100 * (1 + len(request.transcript))

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        read = self.count_tokens(request)
        asked = Asked(os.getpid(), read, request.max_output or 0)
        async with await trio.open_unix_socket(self._address) as stream:
            await stream.send_all(msgspec.json.encode(asked))
            written = int(await stream.receive_some())
        cost = PRICE.cost_of(input_tokens=read, output_tokens=written)
        usage = Usage(1, read, written, cost)
        has_asked = any(isinstance(it, AssistantMessage) for it in request.transcript)
        if request.tools and not has_asked:
            tasks = [{"goal": f"part {number}"} for number in range(self._chance.randrange(1, 4))]
            call = ToolCall("delegate_task", {"tasks": tasks})
            return AssistantMessage("", (call,), usage, self.name)
        return AssistantMessage("done", (), usage, self.name)


async def live(life: Life) -> None:
    """Be one process: continue the interrupted trees, and run new ones."""
    model: Any = RemoteModel(life.provider, random.Random(life.seed))
    helper = Agent("helper", model=model)
    editor = Agent("editor", model=model, delegates=[helper])
    store = journals_at(life.address).store(life.journal)
    async with AsyncExitStack() as stack:
        opened: Journal
        while True:
            try:
                opened = await stack.enter_async_context(store.open_writer())
                break
            except JournalInUseError:
                # The lease of the process before it is not over.
                await trio.sleep(RETRY_SECONDS)
        if life.kill_after:
            last = (await opened.read(Rules())).last_seq
            opened = CrashingJournal(opened, after=last + life.kill_after, kill=True)
        orchestrator = await stack.enter_async_context(open_orchestrator(opened, runs="durable"))
        with budget(calls=life.calls, usd=life.usd, shared="team"):
            async with trio.open_nursery() as nursery:
                for number in range(RUNS):
                    nursery.start_soon(orchestrator.run, editor, f"write page {number}")


class World:
    """Processes that share an account, and the provider that counts their requests."""

    def __init__(
        self, seed: int, folder: Path, address: str, *, python: Sequence[str], kills: int
    ) -> None:
        self._chance = chance = random.Random(seed)
        self._folder = folder
        self._address = address
        self._python = python
        self._kills = kills
        self._is_deadly = kills > 0
        """The first request is always killed, others by chance."""
        self._calls = chance.choice([12, 20, 40])
        self._usd = chance.choice([0.3, 0.6, 1.5])
        self._provider = str(folder / "provider")
        self._counted = NOTHING
        self.requests = 0
        self.deaths = 0
        self._problems: list[str] = []

    async def play(self) -> list[str]:
        """Run all processes to their end, and return the problems."""
        async with trio.open_nursery() as serving:
            await serving.start(self._open_provider)
            async with trio.open_nursery() as processes:
                for number in range(PROCESSES):
                    processes.start_soon(self._keep_alive, f"journal-{number}.db")
            serving.cancel_scope.cancel()
        await self._compare()
        return self._problems

    async def _open_provider(self, task_status: "trio.TaskStatus[None]") -> None:
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(self._provider)
        listening.listen(100)
        task_status.started()
        await trio.serve_listeners(self._answer, [trio.SocketListener(listening)])

    async def _answer(self, stream: trio.SocketStream) -> None:
        # A process that is killed may break its connection at any moment.
        with suppress(trio.BrokenResourceError):
            async with stream:
                await self._count(stream)

    async def _count(self, stream: trio.SocketStream) -> None:
        if not (line := await stream.receive_some()):
            return  # it was killed before it asked
        asked = msgspec.json.decode(line, type=Asked)
        most = asked.amounts(asked.most)
        self.requests += 1
        self._counted += most
        self._check()
        chance = self._chance
        if self._is_deadly and (self.requests == 1 or (self._kills and chance.random() < 0.1)):
            # It could have written all of its answer.
            self._kill(asked.pid)
            return
        written = min(asked.most, chance.choice([1, 50, 400]))
        # Before it is told: the process may ask again at once.
        self._counted += asked.amounts(written) - most
        await stream.send_all(str(written).encode())
        if self._kills and chance.random() < 0.05:
            self._kill(asked.pid)

    def _check(self) -> None:
        counted = self._counted
        if counted.calls > self._calls or counted.micro_usd > round(self._usd * 1_000_000):
            self._problems.append(f"{counted} at the provider: more than {self._limits}")

    @property
    def _limits(self) -> str:
        return f"calls={self._calls}, usd={self._usd}"

    def _kill(self, pid: int) -> None:
        self._kills = max(0, self._kills - 1)
        with suppress(ProcessLookupError):  # it may have killed itself meanwhile
            os.kill(pid, signal.SIGKILL)

    async def _keep_alive(self, journal: str) -> None:
        """Start a process again until it ends by itself."""
        while True:
            kill_after = 0
            if self._kills and self._chance.random() < 0.3:
                self._kills -= 1
                kill_after = self._chance.randrange(2, 40)
            life = Life(
                seed=self._chance.randrange(1_000_000),
                address=self._address,
                journal=journal,
                provider=self._provider,
                calls=self._calls,
                usd=self._usd,
                kill_after=kill_after,
            )
            program = ["-m", "tests.orchestrator.budget_processes"]
            argument = msgspec.json.encode(life).decode()
            ended = await trio.run_process([*self._python, *program, argument], check=False)
            if ended.returncode != -signal.SIGKILL:
                if ended.returncode:
                    self._problems.append(f"the writer of {journal} failed")
                return
            self.deaths += 1

    async def _compare(self) -> None:
        """Compare the parts of the account with the journals, and their sum with the provider."""
        journals = journals_at(self._address)
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(journals.store("watcher").open_writer())
            assert opened.account_store is not None
            parts = await opened.account_store.read(ACCOUNT)
        used = total_used(parts)
        booked = NOTHING
        for part in parts:
            async with journals.store(Path(part.journal).name).open_writer() as journal:
                contents = await journal.read(Rules())
            ledger = restore_ledger(contents, part.journal, Rules())
            if (account := ledger.accounts.get(ACCOUNT)) is not None:
                booked += account.used
        booked -= Amounts(tasks=booked.tasks)
        used -= Amounts(tasks=used.tasks)
        counted = self._counted
        if used != booked:
            self._problems.append(f"the account has {used}, and its journals {booked}")
        if (used.calls, used.micro_usd) < (counted.calls, counted.micro_usd):
            self._problems.append(f"the account has {used}, and the provider {counted}")
        if not self.deaths and used != counted:
            self._problems.append(f"without a kill the account has {used} of {counted}")


def play(
    seed: int, address: str = "", *, python: Sequence[str] = (sys.executable,), kills: int = 6
) -> tuple[World, list[str]]:
    """Play one round in a folder of its own, or in a database; return it and the problems."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        journals = address or f"{path / 'runs'}{os.sep}"
        world = World(seed, path, journals, python=python, kills=kills)
        return world, trio.run(world.play)


@contextmanager
def new_address() -> Generator[str]:
    """Start a Postgres, and return the address of its database with short leases."""
    with open_postgres() as server, server.new_database() as url:
        yield f"{url}&lease=1"


def main() -> int:
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        trio.run(live, msgspec.json.decode(sys.argv[1], type=Life))
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m tests.orchestrator.budget_processes", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--postgres", action="store_true", help="journals in a database")
    asked = parser.parse_args()
    requests = deaths = 0
    broken: list[int] = []
    for seed in range(asked.seed, asked.seed + asked.rounds):
        with new_address() if asked.postgres else nullcontext("") as address:
            world, problems = play(seed, address, kills=0 if seed % 5 == 0 else 6)
        requests += world.requests
        deaths += world.deaths
        if problems:
            broken.append(seed)
            print(f"seed {seed}:", *problems[:9], sep="\n    ", flush=True)
    print(
        f"{asked.rounds - len(broken)} of {asked.rounds} accounts of {PROCESSES} processes were"
        f" exact: {requests} requests at the provider, {deaths} kills"
    )
    if broken:
        print(f"seeds: {', '.join(map(str, broken))}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
