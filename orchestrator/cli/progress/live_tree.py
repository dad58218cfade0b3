"""The tree while it grows, in the terminal that runs it; who needs somebody is answered there.

The picture is ours alone: what is typed is part of it, and what is printed goes above it.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NoReturn

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agents import raising_one_error
from delegation import Tree
from delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.cli.terminal.approvals import (
    one_line_subject,
    parse_answer,
    pending_approvals,
    question_lines,
    question_text,
)
from orchestrator.cli.terminal.keyboard import InputLine, KeyReader, raw_terminal
from orchestrator.cli.terminal.style import is_ascii
from orchestrator.cli.terminal.tree_frame import Canvas, RunSnapshot, render_frame
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import Orchestrator

FRAMES_PER_SECOND: Final = 8
IDLE_SECONDS: Final = 1
"""How often it is drawn when nothing happens, for the clock."""
RESERVED_LINES: Final = 10
"""How many lines of a terminal are not for a question: who else needs somebody, the tree, keys."""
ANSWER_HINT: Final = "y once · t in this task · s in this session · n no, and why"


async def show_live(
    orchestrator: Orchestrator, console: Console, *, attended: bool
) -> None:
    """Show the newest tree while it grows, until cancelled.

    Args:
        orchestrator: whose.
        console: where.
        attended: somebody sits there, and answers.
    """
    view = LiveView(orchestrator, console, attended=attended)
    with ExitStack() as until_the_end, raising_one_error():
        keys = until_the_end.enter_context(raw_terminal()) if attended else None
        until_the_end.enter_context(view.shown())
        async with trio.open_nursery() as nursery:
            if keys is not None:
                terminal, stops = keys
                nursery.start_soon(
                    terminal.stop_with_ctrl_z, stops, view.hide, view.restore
                )
                nursery.start_soon(view.answer_forever, KeyReader())
            await view.draw_forever()


class LiveView:
    """A picture that follows a run."""

    def __init__(
        self, orchestrator: Orchestrator, console: Console, *, attended: bool
    ) -> None:
        self._orchestrator = orchestrator
        self._console = console
        self._is_ascii = is_ascii(console)
        # Rich refreshes from a thread of its own unless told not to.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._tick = 0
        self._active_at = orchestrator.now()
        self._is_attended = attended
        self._current_question: ApprovalQuestion | None = None
        """What whoever sits there is asked now."""
        self._line = InputLine("approve? ")
        self._note = ""
        self._answered: set[str] = set()
        """What was answered here."""
        self._ignored_approvals = pending_approvals(orchestrator)

    @contextmanager
    def shown(self) -> Generator[None]:
        with self._live:
            yield

    def hide(self) -> None:
        self._live.stop()

    def restore(self) -> None:
        self._live.start()
        self.draw()

    async def draw_forever(self) -> NoReturn:
        """Draw when something has changed, and else for the clock."""
        seen = 0
        while True:
            self.draw()
            with trio.move_on_after(IDLE_SECONDS):
                seen = await self._orchestrator.wait_changed(after=seen)
                self._active_at = self._orchestrator.now()
            await trio.sleep(1 / FRAMES_PER_SECOND)

    def draw(self) -> None:
        if (tree := newest_tree(self._orchestrator)) is None:
            return
        self._tick += 1
        console = self._console
        sight = RunSnapshot(
            tree=tree,
            questions=self._open_questions(),
            calls=self._orchestrator.calls,
            now=self._orchestrator.now(),
            active_at=self._active_at,
        )
        paper = Canvas(
            width=console.width,
            # As high as the screen it would scroll.
            height=max(1, console.height - 1),
            ascii=self._is_ascii,
            tick=self._tick,
        )
        picture = render_frame(
            sight, paper, bottom_lines=self._update_question(sight.questions)
        )
        self._live.update(Group(*picture.lines), refresh=True)

    def _open_questions(self) -> list[ApprovalQuestion]:
        asks = self._orchestrator.approvals
        return [ask for ask in asks if ask.id not in self._ignored_approvals]

    def _update_question(self, asks: Sequence[ApprovalQuestion]) -> list[Text]:
        """Turn to the oldest question, and return it with what is typed so far."""
        first = asks[0] if asks else None
        before = self._current_question
        if first != before:
            self._current_question, self._line.text, self._note = first, "", ""
            if before is not None and before.id not in self._answered:
                self._print_line(
                    f"{_question_summary(before)} — answered elsewhere, or over", "dim"
                )
        if first is None or not self._is_attended:
            return []
        question = question_lines(
            question_text(first),
            width=self._console.width,
            most=max(2, self._console.height - RESERVED_LINES),
            hint=f"; all of it: orchestrator show {first.task}",
        )
        return [
            *question,
            Text(self._note or ANSWER_HINT, style="dim"),
            self._line.render(),
        ]

    def _print_line(self, line: str, style: str) -> None:
        self._console.print(Text(line, style=style), soft_wrap=True)

    async def answer_forever(self, keys: KeyReader) -> NoReturn:
        """Let whoever sits there answer, one question after the other."""
        while (key := await keys.read()) is not None:
            said = self._line.press(key)
            if said is not None and self._current_question is not None:
                await self._handle_input(said, self._current_question)
            self.draw()
        seen = 0
        while True:
            for ask in self._open_questions():
                await self._answer(
                    ask, ApprovalVerdict.DENY, "nobody is there to answer"
                )
            seen = await self._orchestrator.wait_changed(after=seen)

    async def _handle_input(self, said: str, ask: ApprovalQuestion) -> None:
        self._line.text, self._note = "", ""
        answer = parse_answer(said)
        if answer is not None:
            await self._answer(ask, *answer)
        else:
            self._note = f"that is no answer: {ANSWER_HINT}"
            await trio.lowlevel.checkpoint()

    async def _answer(
        self, ask: ApprovalQuestion, answer: ApprovalVerdict, reason: str
    ) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._orchestrator.answer(
                ask.id, answer, reason=reason, by="the user"
            )
        except UnknownIdError:
            return  # that is said when the next one is turned to
        self._answered.add(ask.id)
        why = f": {reason}" if reason else ""
        self._print_line(f"{_question_summary(ask)} — {answer}{why}", "yellow")


def _question_summary(ask: ApprovalQuestion) -> str:
    return f"{ask.path}  {ask.tool}: {one_line_subject(ask.subject)}"


def newest_tree(orchestrator: Orchestrator) -> Tree | None:
    """Return the newest tree, unless it ended before we came."""
    try:
        return orchestrator.tree(orchestrator.runs[-1]) if orchestrator.runs else None
    except UnknownIdError:
        return None
