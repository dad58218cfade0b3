"""What somebody is asked to approve, as they see it: nobody agrees to what they cannot see.

A line end is a command of its own to a shell, so it is never shown as a blank.
"""

from typing import Final

from rich.text import Text

from delegation import printable
from delegation.events.approvals import ApprovalQuestion
from orchestrator.cli.terminal.transcript import INDENT, wrapped

LINE_END: Final = " ⏎ "


def one_line_subject(subject: str) -> str:
    """Return what is asked about on one line; where lines end can be seen."""
    lines = (" ".join(line.split()) for line in printable(subject).splitlines())
    return LINE_END.join(lines)


def question_text(ask: ApprovalQuestion) -> str:
    """Return who asks for what, line by line as it is."""
    lines = printable(ask.subject).expandtabs(4).splitlines()
    subject = f"\n{INDENT}".join(lines)
    return f"{ask.path}  {ask.tool}: {subject}"


def question_lines(
    question: str, *, width: int, most: int, hint: str = ""
) -> list[Text]:
    """Return a question in lines of this width; what is too much is counted.

    Args:
        question: what is asked.
        width: of the terminal.
        most: how many lines there is room for.
        hint: where all of it can be seen.
    """
    lines = wrapped((Text(line) for line in question.splitlines()), width)
    if len(lines) > most:
        left = len(lines) - most + 1
        more = Text(f"… {left} more lines{hint}", style="bold red")
        lines = [*lines[: most - 1], more]
    for line in lines:
        line.stylize_before("bold yellow")
    return lines
