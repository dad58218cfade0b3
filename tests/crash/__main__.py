"""`python -m tests.crash --rounds 1000 --seed 7`: kill a process as often as that."""

import argparse
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.crash.kill import (
    KilledWronglyError,
    Nest,
    Round,
    kill_again_and_again,
    open_nest,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--jobs", type=int, default=2, help="rounds at the same time")
    parser.add_argument("--keep", action="store_true", help="keep every journal")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.rounds)
    with ThreadPoolExecutor(asked.jobs) as jobs:
        shares = [seeds[job :: asked.jobs] for job in range(asked.jobs)]
        results = jobs.map(lambda share: kill_all(share, keep=asked.keep), shares)
        rounds = [it for result in results for it in result]
    moments = Counter(death.split()[0] for it in rounds for death in it.deaths)
    kills = sum(len(it.deaths) for it in rounds)
    print(
        f"{len(rounds)} of {asked.rounds} rounds ended well; {kills} kills: {dict(moments)}"
    )
    return 0 if len(rounds) == asked.rounds else 1


def kill_all(seeds: range, *, keep: bool) -> list[Round]:
    with open_nest() as nest:
        return [it for seed in seeds if (it := kill_one(seed, nest, keep=keep))]


def kill_one(seed: int, nest: Nest, *, keep: bool) -> Round | None:
    home = Path(tempfile.mkdtemp(prefix=f"crash-{seed}-"))
    try:
        done = kill_again_and_again(seed, nest, home)
    except KilledWronglyError as exc:
        traceback.print_exc()
        print(f"{exc}\nthe journal is in {home}", file=sys.stderr, flush=True)
        return None
    if keep:
        print(f"seed {seed}: {done.entries} facts, in {home}")
    else:
        shutil.rmtree(home)
    return done


if __name__ == "__main__":
    sys.exit(main())
