"""Print the figures of the gate beside the baseline and the goals: `python -m tests.performance`.

Name some of the kinds to measure only these: `python -m tests.performance calls memory`. `--write`
stores the figures as the baseline of this Python. `--only TEXT` measures the calls of workloads
whose name contains the text, and `--functions` lists their most called functions.
`--milliseconds` also prints the CPU time of the longest steps.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import trio

from tests.performance import baseline, completions, workloads
from tests.performance.baseline import Figures
from tests.performance.counting import ROOT, Calls
from tests.performance.growth import GROWTH
from tests.performance.imports import count_imports
from tests.performance.instructions import count_instructions, why_not_here
from tests.performance.memory import measure_waiting_child
from tests.performance.steps import count_longest_steps, time_longest_steps

Measured = tuple[Figures, dict[str, Calls] | None]


def _calls(only: str = "") -> Measured:
    works = workloads.WORKLOADS | completions.WORKLOADS
    functions = {name: trio.run(work) for name, work in works.items() if only in name}
    return {name: calls.sums for name, calls in functions.items()}, functions


def _memory() -> Measured:
    return {"a waiting child": trio.run(measure_waiting_child)}, None


def _growth() -> Measured:
    found: Figures = {}
    for name, work in GROWTH.items():
        small, large = trio.run(work)
        found[name] = {"times": large / small}
    return found, None


def _steps() -> Measured:
    steps = trio.run(count_longest_steps)
    return {"a fan-out of 2,000": {f"calls {where}": it for where, it in steps.items()}}, None


def _instructions() -> Measured:
    return count_instructions(), None


def _imports() -> Measured:
    return {"the README's first program": dict(count_imports())}, None


KINDS: Final[dict[str, Callable[[], Measured]]] = {
    "calls": _calls,
    "memory": _memory,
    "steps": _steps,
    "imports": _imports,
    "growth": _growth,
    "instructions": _instructions,
}


def main() -> None:
    """Measure, print, and store or check the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], default=[])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail above the baseline")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--milliseconds", action="store_true")
    options = parser.parse_args()
    kinds = options.kinds or [*KINDS]
    if len(kinds) > 1:
        # One process each, as in the tests: caches that one kind fills change the next.
        sys.exit(max(_measure_apart(kind) for kind in kinds))
    kind = kinds[0]
    if kind == "instructions" and (reason := why_not_here()):
        print(f"No instructions: {reason}.")
        return
    figures, functions = _calls(options.only) if kind == "calls" else KINDS[kind]()
    if options.check:
        if failed := baseline.problems(kind, figures, functions):
            sys.exit("\n".join([*failed, baseline.EXPLAIN]))
        print(baseline.advice(kind, figures) or "")
        return
    baseline.print_table(kind, figures)
    if options.functions and functions:
        _print_functions(functions)
    if options.milliseconds and kind == "steps":
        print(json.dumps(trio.run(time_longest_steps)))
    if options.write and not options.only:
        baseline.write(kind, figures, functions)


def _measure_apart(kind: str) -> int:
    flags = [it for it in sys.argv[1:] if it not in KINDS]
    command = [sys.executable, "-m", "tests.performance", kind, *flags]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    return subprocess.run(command, check=False, cwd=ROOT, env=environ).returncode


def _print_functions(functions: dict[str, Calls]) -> None:
    for workload, calls in functions.items():
        for unit, counts in (("Python", calls.python), ("C", calls.c)):
            print(f"\n{workload}, calls in {unit}")
            for name, count in counts.most_common(40):
                print(f"{count:10.2f}  {name}")


if __name__ == "__main__":
    main()
