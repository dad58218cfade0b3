"""Draws the pictures of the README from a real run of the demonstration: `make picture`."""

import io
import re
import sys
from pathlib import Path

import trio
import trio.testing
from rich.console import Console

from orchestrator import open_orchestrator
from orchestrator.cli.demo_team import QUESTION, demo_team
from orchestrator.cli.terminal.tree_table import print_reasons, print_tree

PICTURE = Path(__file__).parent / "demo.svg"


async def draw() -> str:
    """Return the demonstration's tree as a drawing."""
    console = Console(record=True, width=118, force_terminal=True, file=io.StringIO())
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(demo_team(seconds=0.8)) as session:
            await session.ask(QUESTION)
            await session.wait_idle()
            print_tree(session.tree, console)
            console.print()
            print_reasons(session.tree, console)
    svg = console.export_svg(title="orchestrator demo")
    # Rich's drawing would fetch a font from the network; a local font will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    # On a jumping clock the run is instant and has the same times every time.
    clock = trio.testing.MockClock(autojump_threshold=0)
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    file.write_text(trio.run(draw, clock=clock))


if __name__ == "__main__":
    main()
