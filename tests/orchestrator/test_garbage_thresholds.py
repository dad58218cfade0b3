"""The processes of the command line collect garbage seldom; programs decide for themselves."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, sys
default = gc.get_threshold()
import orchestrator
assert gc.get_threshold() == default
from orchestrator.__main__ import main
sys.argv = ["orchestrator", "--version"]
try:
    main()
except SystemExit:
    print(gc.get_threshold())
"""


def test_only_the_command_line_changes_the_thresholds_of_the_garbage_collector() -> None:
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=root
    )
    assert ended.stdout.splitlines()[-1] == "(5000, 10, 10)"
