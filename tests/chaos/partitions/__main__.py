"""`python -m tests.chaos.partitions --rounds 30 --seed 7`: real servers with cuts between them."""

import argparse
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import trio

from tests.chaos.partitions.network import DATABASE, missing, open_namespaces
from tests.chaos.partitions.rounds import Round, open_parted_cluster
from tests.postgres import open_postgres


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.partitions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    asked = parser.parse_args()
    if why := missing():
        print(f"rounds with network namespaces were NOT played: {why}", flush=True)
        return 0
    rounds = trio.run(partial(play, range(asked.seed, asked.seed + asked.rounds)))
    broken = sorted(it.seed for it in rounds if it.problems)
    answers = sum((it.history.answers for it in rounds), Counter[int]())
    told = ", ".join(f"{status}: {many}" for status, many in sorted(answers.items()))
    print(f"{len(rounds) - len(broken)} of {len(rounds)} rounds with namespaces held; {told}")
    if broken:
        print(f"seeds: {', '.join(map(str, broken))}")
    return int(bool(broken))


async def play(seeds: range) -> list[Round]:
    """Play a round for each seed, one after another on the same servers."""
    rounds: list[Round] = []
    with (
        open_namespaces() as hosts,
        open_postgres(tcp=True, listen_addresses=f"127.0.0.1,{DATABASE}") as server,
        tempfile.TemporaryDirectory(prefix="partitions-") as folder,
    ):
        async with open_parted_cluster(hosts, server, Path(folder)) as cluster:
            for seed in seeds:
                rounds.append(await cluster.play(seed))
                print(rounds[-1].line, flush=True)
    return rounds


if __name__ == "__main__":
    sys.exit(main())
