"""`python -m tests.chaos --rounds 1000 --seed 7`: kill processes as often as that."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.chaos.provider import CountingProvider
from tests.chaos.rounds import Round, Spawner, open_spawner, play_round
from tests.fake_provider import serving

OTHER_PROOFS: Final = (
    "tests.orchestrator.budget_trees",
    "tests.orchestrator.script_budgets",
    "tests.orchestrator.budget_processes",
    "tests.journal.power_cuts",
    "tests.journal.corruption",
    "tests.workers.long_proofs",
)
"""The other long proofs, each with its own --seed and --rounds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--jobs", type=int, default=2, help="rounds at the same time")
    parser.add_argument("--keep", action="store_true", help="keep every folder")
    parser.add_argument("--all", action="store_true", help="the other proofs, too")
    parser.add_argument(
        "--cluster", type=int, default=50, help="rounds in a cluster, at most (--all)"
    )
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.rounds)
    rounds = trio.run(partial(play, seeds, jobs=asked.jobs, keep=asked.keep))
    print(summary(rounds), flush=True)
    codes = [int(any(it.problems for it in rounds))]
    if asked.all:
        codes += [prove(module, asked.seed, asked.rounds) for module in OTHER_PROOFS]
        rounds_there = min(asked.rounds, asked.cluster)
        codes.append(prove("tests.chaos.cluster", asked.seed, rounds_there))
    return max(codes)


async def play(seeds: range, *, jobs: int, keep: bool) -> list[Round]:
    """Play a round for each seed, some at the same time."""
    rounds: list[Round] = []

    async def play_share(share: range) -> None:
        async with open_spawner() as spawner:
            for seed in share:
                played = await play_one(seed, spawner, provider, keep=keep)
                rounds.append(played)

    async with serving(CountingProvider()) as provider, trio.open_nursery() as playing:
        for job in range(jobs):
            playing.start_soon(play_share, seeds[job::jobs])
    return rounds


async def play_one(seed: int, spawner: Spawner, provider: CountingProvider, *, keep: bool) -> Round:
    home = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-"))
    played = await play_round(seed, spawner, provider, home)
    lines = [played.line]
    if played.problems:
        deaths = "; ".join(death.how for death in played.deaths) or "nothing"
        lines += [
            *(f"    {problem}" for problem in played.problems),
            f"    killed at: {deaths}",
            f"    its folder: {home}",
            f"    again: python -m tests.chaos --rounds 1 --seed {seed}",
        ]
    elif not keep:
        shutil.rmtree(home)
    print("\n".join(lines), flush=True)
    return played


def summary(rounds: Sequence[Round]) -> str:
    kills = sum(len(it.deaths) for it in rounds)
    broken = [it.seed for it in rounds if it.problems]
    laws = Counter(
        law for it in rounds for law in {problem.partition(":")[0] for problem in it.problems}
    )
    seen = [it.seen for it in rounds]
    lines = [
        f"{len(rounds) - len(broken)} of {len(rounds)} rounds held: {kills} kills,"
        f" {sum(it.tasks for it in seen)} tasks, {sum(it.requests for it in seen)} requests,"
        f" {sum(it.effects for it in seen)} effects, {sum(it.receipts for it in seen)} receipts,"
        f" {sum(it.told for it in seen)} notices;"
        f" {sum(it.paid_twice for it in seen)} answers paid twice,"
        f" the oldest {max((it.oldest for it in seen), default=0):.3f} s old"
    ]
    lines += [f"{law}: broken in {times} rounds" for law, times in laws.most_common()]
    if broken:
        lines.append(f"seeds: {', '.join(map(str, broken))}")
    return "\n".join(lines)


def prove(module: str, seed: int, rounds: int) -> int:
    print(f"python -m {module} --seed {seed} --rounds {rounds}", flush=True)
    command = [sys.executable, "-m", module, "--seed", str(seed), "--rounds", str(rounds)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
