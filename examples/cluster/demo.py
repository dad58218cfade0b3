"""`make demo-cluster`: two servers and a worker on one database; a server is killed in mid-run.

A throwaway Postgres, two `orchestrator serve` and one `orchestrator worker`; a run that is begun at
the first server and followed at the second. The first one is killed with SIGKILL while its readers
are at work. The second one takes over as soon as the lease is over, and goes on with what was not
finished. The worker never notices: what it was doing is done once.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio
from throwaway_postgres import open_throwaway_postgres

TEAM = Path(__file__).with_name("team.py")
TOKEN = "a-token-of-this-demonstration"  # noqa: S105 (of nothing real)
LEASE = 3
"""After so many seconds without a word of a server another one takes over: 15 by default."""
START_SECONDS = 40
ALL_SECONDS = 90
BOLD, RED, GREEN, PLAIN = "\33[1m", "\33[31m", "\33[32m", "\33[0m"


class Screen:
    """Prints lines with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = trio.current_time()
        self._is_styled = sys.stdout.isatty() and "NO_COLOR" not in os.environ

    @property
    def seconds(self) -> float:
        return trio.current_time() - self._began

    def say(self, text: str, style: str = "") -> None:
        if self._is_styled and style:
            text = f"{style}{text}{PLAIN}"
        print(f"{self.seconds:5.1f} s  {text}", flush=True)

    def show(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            print(f"         {line}", flush=True)


class Member:
    """A process of the cluster, on a machine of its own by name."""

    def __init__(self, host: str, process: trio.Process) -> None:
        self.host = host
        self.process = process
        self._said = ""

    async def wait_for(self, pattern: str) -> str:
        """Wait until it has printed something, and return that."""
        assert self.process.stdout is not None, "it is a pipe"
        with trio.move_on_after(START_SECONDS):
            async for some in self.process.stdout:
                self._said += some.decode()
                if found := re.search(pattern, self._said):
                    return found[0]
        raise SystemExit(f"{self.host} did not start:\n{self._said}")

    async def read_on(self) -> None:
        """Read what else it prints, so that it never waits for a reader."""
        assert self.process.stdout is not None, "it is a pipe"
        async for some in self.process.stdout:
            self._said += some.decode()


@asynccontextmanager
async def running(host: str, home: Path, journal: str, *command: str) -> AsyncGenerator[Member]:
    """Start an orchestrator, and stop it at the end."""
    environ = {
        **os.environ,
        "ORCHESTRATOR_API_KEY": TOKEN,
        "ORCHESTRATOR_HOST": host,
        "ORCHESTRATOR_HOME": str(home / host),
        # Not among the arguments, which other users of a machine can see.
        "ORCHESTRATOR_JOURNAL": journal,
        "LIBRARY_LOG": str(home / "library.log"),
    }
    async with trio.open_nursery() as nursery:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "orchestrator", *command],
            env=environ,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Member(host, process)
        finally:
            with trio.move_on_after(10, shield=True):
                if process.poll() is None:
                    process.terminate()
                await process.wait()
            if process.poll() is None:
                process.kill()
            nursery.cancel_scope.cancel()


class Follower:
    """Follows a run at one server, wherever it runs, and comes back when the stream breaks."""

    def __init__(self, screen: Screen, http: httpx2.AsyncClient, run: str) -> None:
        self._screen = screen
        self._http = http
        self._run = run
        self._after = 0
        self._paths: dict[str, str] = {}
        self._begun: set[str] = set()
        self.settled = Counter[str]()
        self.end: Mapping[str, Any] = {}
        self.is_half_done = trio.Event()
        self._at_work = 0
        self.ended = trio.Event()
        self.killed_at: float | None = None
        """When its server was killed, until it goes on."""

    async def follow(self) -> None:
        """Print what happens until the run has ended."""
        while not self.end:
            path = f"/v1/runs/{self._run}/events?after={self._after}"
            try:
                async with self._http.stream("GET", path) as answer:
                    if answer.status_code in {502, 503}:
                        # Its server died just now, or no server has the run: come back soon.
                        await trio.sleep(float(answer.headers["retry-after"]))
                        continue
                    answer.raise_for_status()
                    await self._read(answer)
            except httpx2.TransportError:
                continue  # it came through the server that is dead now
        self.ended.set()

    async def _read(self, answer: httpx2.Response) -> None:
        kind = ""
        async for line in answer.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                self._after = int(value)
            elif name == "event":
                kind = value
            elif name == "data" and kind == "end":
                self.end = json.loads(value)
            elif name == "data" and kind == "fact":
                self._take(json.loads(value))

    def _take(self, fact: Mapping[str, Any]) -> None:
        if self.killed_at is not None:
            pause = self._screen.seconds - self.killed_at
            self._screen.say(f"the other server goes on, {pause:.1f} s later", GREEN)
            self.killed_at = None
        body = fact["body"]
        match fact["kind"]:
            case "TaskRequested":
                request = body["request"]
                self._paths[request["id"]] = f"/{request['agent']}: {request['goal']}"
                if body["started"]:
                    self._begin(request["id"])
            case "TaskStarted":
                self._begin(body["task"])
            case "CallPlaced" if body.get("worker"):
                self._at_work += 1
                self._screen.say(f"at work  {body['worker']} at {body['place']!r}")
            case "TaskSettled":
                self.settled[body["task"]] += 1
                self._screen.say(f"settled  {self._paths[body['task']]}", GREEN)
            case _:
                pass
        if self.settled.total() >= 2 and self._at_work >= 2:
            self.is_half_done.set()

    def _begin(self, task: str) -> None:
        verb = "goes on " if task in self._begun else "begins  "
        self._begun.add(task)
        self._screen.say(f"{verb} {self._paths[task]}")


def client(address: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=address,
        headers={"authorization": f"Bearer {TOKEN}"},
        timeout=httpx2.Timeout(10, read=30),
    )


async def demonstrate(screen: Screen, journal: str, home: Path) -> bool:
    serve = ("serve", str(TEAM), "--port", "0")
    work = ("worker", str(TEAM), "--place", "library", "--slots", "4")
    async with (
        running("host-a", home, journal, *serve) as first,
        running("host-b", home, journal, *serve) as second,
        running("host-c", home, journal, *work) as worker,
        trio.open_nursery() as nursery,
    ):
        addresses = [
            await server.wait_for(r"http://127\.0\.0\.1:\d+") for server in (first, second)
        ]
        await worker.wait_for(r"worker .*\n")
        for member in (first, second, worker):
            nursery.start_soon(member.read_on)
        screen.say(f"{first.host} serves at {addresses[0]}")
        screen.say(f"{second.host} serves at {addresses[1]}")
        screen.say(f"{worker.host} is a worker, and has the library")
        async with client(addresses[0]) as http, client(addresses[1]) as other:
            asked = {"model": "editor", "input": "Have six books read."}
            run = (await http.post("/v1/runs", json=asked)).json()["id"]
            screen.say(f"run {run} begins at {first.host}, and is followed at {second.host}", BOLD)
            follower = Follower(screen, other, run)
            nursery.start_soon(follower.follow)
            await follower.is_half_done.wait()

            first.process.kill()
            await first.process.wait()
            follower.killed_at = screen.seconds
            screen.say(f"kill -9 {first.process.pid}: {first.host} is dead in mid-run", RED)
            await follower.ended.wait()

            screen.say(f"the run has ended: {follower.end['status']}", BOLD)
            screen.show((await other.get(f"/v1/runs/{run}/tree?format=text")).text)
        nursery.cancel_scope.cancel()
    borrowed = Counter((home / "library.log").read_text().split())
    once = set(follower.settled.values()) == set(borrowed.values()) == {1}
    screen.say(
        f"{len(follower.settled)} tasks, each settled once; {len(borrowed)} books borrowed, each"
        f" once: {'yes' if once else 'NO'}",
        GREEN if once else RED,
    )
    return once and follower.end["status"] == "completed"


async def main() -> None:
    screen = Screen()
    with (
        trio.fail_after(ALL_SECONDS),
        tempfile.TemporaryDirectory(prefix="demo-cluster-") as home,
        open_throwaway_postgres() as (address, version),
    ):
        screen.say(f"Postgres {version} runs, in a folder of its own")
        if not await demonstrate(screen, f"{address}&lease={LEASE}", Path(home)):
            raise SystemExit(1)


if __name__ == "__main__":
    trio.run(main)
