"""The live tree in the terminal that runs the tasks; the user answers questions in it."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NoReturn

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from orchestrator.agents import raising_one_error
from orchestrator.cli.terminal import approvals
from orchestrator.cli.terminal.keyboard import InputLine, KeyReader, raw_terminal
from orchestrator.cli.terminal.style import is_ascii
from orchestrator.cli.terminal.task_line import Canvas
from orchestrator.cli.terminal.tree_frame import RunSnapshot, render_frame
from orchestrator.delegation import SessionId, Tree
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.sessions import Orchestrator

FRAMES_PER_SECOND: Final = 8
IDLE_SECONDS: Final = 1
"""The seconds between two drawings without a change, for the clock."""
RESERVED_LINES: Final = 10
"""The lines that a question leaves free for other questions, the tree and the keys."""
ANSWER_HINT: Final = "y once · t in this task · s in this session · n no, and why"


async def show_live(
    orchestrator: Orchestrator, console: Console, *, attended: bool, run: SessionId | None = None
) -> None:
    """Show the tree of a run, by default the newest, while it grows, until cancelled."""
    view = LiveView(orchestrator, console, attended=attended, run=run)
    with ExitStack() as stack, raising_one_error():
        keys = stack.enter_context(raw_terminal()) if attended else None
        stack.enter_context(view.shown())
        async with trio.open_nursery() as nursery:
            if keys is not None:
                terminal, stops = keys
                nursery.start_soon(terminal.stop_with_ctrl_z, stops, view.hide, view.restore)
                nursery.start_soon(view.answer_forever, KeyReader())
            await view.draw_forever()


class LiveView:
    """The live frame of a run: by default the newest."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        console: Console,
        *,
        attended: bool,
        run: SessionId | None = None,
    ) -> None:
        self._orchestrator = orchestrator
        self._run = run
        self._console = console
        self._is_ascii = is_ascii(console)
        # Otherwise rich refreshes from a thread of its own.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._tick = 0
        self._active_at = orchestrator.now()
        self._is_attended = attended
        self._current_question: ApprovalQuestion | None = None
        """The question that the user is asked now."""
        self._line = InputLine("approve? ")
        self._note = ""
        self._answered: set[str] = set()
        """The questions that were answered here."""
        self._ignored_approvals = approvals.pending_approvals(orchestrator)

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
        """Draw on every change, and from time to time for the clock."""
        seen = 0
        while True:
            self.draw()
            with trio.move_on_after(IDLE_SECONDS):
                seen = await self._orchestrator.wait_changed(after=seen)
                self._active_at = self._orchestrator.now()
            await trio.sleep(1 / FRAMES_PER_SECOND)

    def draw(self) -> None:
        if (tree := shown_tree(self._orchestrator, self._run)) is None:
            return
        self._tick += 1
        console = self._console
        snapshot = RunSnapshot(
            tree=tree,
            questions=self._open_questions(),
            calls=self._orchestrator.calls,
            place=self._orchestrator.read.awaited_place,
            provider=self._orchestrator.read.awaited_provider,
            now=self._orchestrator.now(),
            active_at=self._active_at,
        )
        canvas = Canvas(
            width=console.width,
            # A frame as high as the screen would scroll.
            height=max(1, console.height - 1),
            ascii=self._is_ascii,
            tick=self._tick,
        )
        frame = render_frame(
            snapshot, canvas, bottom_lines=self._update_question(snapshot.questions)
        )
        self._live.update(Group(*frame.lines), refresh=True)

    def _open_questions(self) -> list[ApprovalQuestion]:
        questions = self._orchestrator.approvals
        return [question for question in questions if question.id not in self._ignored_approvals]

    def _update_question(self, questions: Sequence[ApprovalQuestion]) -> list[Text]:
        """Select the oldest question, and return its lines with the input line."""
        first = questions[0] if questions else None
        before = self._current_question
        if first != before:
            self._current_question, self._line.text, self._note = first, "", ""
            if before is not None and before.id not in self._answered:
                self._print_line(
                    f"{_question_summary(before)} — answered elsewhere, or over", "dim"
                )
        if first is None or not self._is_attended:
            return []
        question = approvals.question_lines(
            approvals.question_text(first),
            width=self._console.width,
            most=max(2, self._console.height - RESERVED_LINES),
            hint=f"; all of it: orchestrator show {first.task}",
        )
        return [*question, Text(self._note or ANSWER_HINT, style="dim"), self._line.render()]

    def _print_line(self, line: str, style: str) -> None:
        self._console.print(Text(line, style=style), soft_wrap=True)

    async def answer_forever(self, keys: KeyReader) -> NoReturn:
        """Read answers of the user, one question after the other."""
        while (key := await keys.read()) is not None:
            text = self._line.press(key)
            if text is not None and self._current_question is not None:
                await self._handle_input(text, self._current_question)
            self.draw()
        seen = 0
        while True:
            for question in self._open_questions():
                await self._answer(question, *approvals.UNATTENDED_DENIAL)
            seen = await self._orchestrator.wait_changed(after=seen)

    async def _handle_input(self, text: str, question: ApprovalQuestion) -> None:
        self._line.text, self._note = "", ""
        answer = approvals.parse_answer(text)
        if answer is not None:
            await self._answer(question, *answer)
        else:
            self._note = f"that is no answer: {ANSWER_HINT}"
            await trio.lowlevel.checkpoint()

    async def _answer(
        self, question: ApprovalQuestion, answer: ApprovalVerdict, reason: str
    ) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._orchestrator.answer(question.id, answer, reason=reason, by="the user")
        except UnknownIdError:
            return  # `_update_question` prints that it is over
        self._answered.add(question.id)
        why = f": {reason}" if reason else ""
        self._print_line(f"{_question_summary(question)} — {answer}{why}", "yellow")


def _question_summary(question: ApprovalQuestion) -> str:
    return f"{question.path}  {question.tool}: {approvals.one_line_subject(question.subject)}"


def shown_tree(orchestrator: Orchestrator, run: SessionId | None = None) -> Tree | None:
    """Return the tree of a run, or the newest one, if it is in memory."""
    runs = orchestrator.runs[-1:] if run is None else [run]
    try:
        return orchestrator.tree(runs[0]) if runs else None
    except UnknownIdError:
        return None
