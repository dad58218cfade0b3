"""The help of the whole command line, made of the table of commands alone."""

import textwrap

from orchestrator.cli.command_table import COMMANDS

INTRODUCTION = "Agents that delegate work to other agents, and the tree of their tasks."
ENDING = (
    "orchestrator COMMAND --help shows the options of a command, --version the version,"
    " --install-completion adds completion to your shell."
)


def help_page(width: int) -> str:
    """Return the page, for a terminal of a width."""
    width = min(width, 100)
    longest = max(len(name) for group in COMMANDS.values() for name in group)
    lines = ["Usage: orchestrator COMMAND", "", *textwrap.wrap(INTRODUCTION, width)]
    for title, group in COMMANDS.items():
        lines += ["", f"{title}:"]
        for name, sentence in group.items():
            begin = f"  {name:<{longest}}  "
            lines += textwrap.wrap(
                sentence, width, initial_indent=begin, subsequent_indent=" " * len(begin)
            )
    return "\n".join([*lines, "", *textwrap.wrap(ENDING, width)])
