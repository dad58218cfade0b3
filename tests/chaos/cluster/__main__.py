"""`python -m tests.chaos.cluster --rounds 50 --seed 7`: faults in a cluster, as often as that."""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from tests.chaos.cluster.processes import Spawner, open_spawner
from tests.chaos.cluster.rounds import Round, plan_of, play_round, prepare
from tests.postgres import PostgresServer, open_postgres


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cluster", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--jobs", type=int, default=2, help="rounds at the same time")
    parser.add_argument("--keep", action="store_true", help="keep every folder")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.rounds)
    try:
        with open_postgres(tcp=True) as server:
            rounds = trio.run(partial(play, server, seeds, jobs=asked.jobs, keep=asked.keep))
    except FileNotFoundError as exc:
        print(f"rounds in a cluster were NOT played: {exc}", flush=True)
        return 0
    print(summary(rounds), flush=True)
    return int(any(it.problems for it in rounds))


async def play(
    server: PostgresServer, seeds: Sequence[int], *, jobs: int, keep: bool = False
) -> list[Round]:
    """Play a round for each seed, some at the same time; those that crash the server, alone."""
    rounds: list[Round] = []
    await prepare(server)
    alone = [it for it in seeds if "crash Postgres" in plan_of(it).kinds]
    beside = [it for it in seeds if it not in alone]

    async def play_share(share: Sequence[int]) -> None:
        async with open_spawner() as spawner:
            for seed in share:
                played = await _play_one(seed, spawner, server, keep=keep)
                rounds.append(played)

    async with trio.open_nursery() as playing:
        for job in range(jobs):
            playing.start_soon(play_share, beside[job::jobs])
    await play_share(alone)
    return rounds


async def _play_one(seed: int, spawner: Spawner, server: PostgresServer, *, keep: bool) -> Round:
    home = Path(tempfile.mkdtemp(prefix=f"cluster-{seed}-"))
    played = await play_round(seed, spawner, server, home)
    print(played.line, flush=True)
    if played.problems:
        print(f"    its folder: {home}", flush=True)
    elif not keep:
        shutil.rmtree(home)
    return played


def summary(rounds: Sequence[Round]) -> str:
    broken = sorted(it.seed for it in rounds if it.problems)
    faults = Counter(kind for it in rounds for kind in it.plan.kinds)
    lines = [
        f"{len(rounds) - len(broken)} of {len(rounds)} rounds in a cluster held:"
        f" {sum(it.epochs for it in rounds)} writers, {sum(it.effects for it in rounds)} effects,"
        f" {sum(it.broken_off for it in rounds)} broken off",
        ", ".join(f"{kind}: {times}" for kind, times in faults.most_common()),
    ]
    if broken:
        lines.append(f"seeds: {', '.join(map(str, broken))}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
