"""The tree while it grows, in the terminal that runs it; who needs somebody is answered there.

The picture is ours alone: what is typed is part of it, and what is printed goes above it.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

import trio
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from agents import raising_one_error
from delegation import Tree, one_line, printable
from delegation.asking import Answer, Ask
from orchestrator.cli.approvals import TOO_LATE, understood
from orchestrator.cli.frame import Paper, Sight, draw
from orchestrator.cli.keys import Keys, Line, RawTerminal, raw_terminal
from orchestrator.cli.looks import is_ascii
from orchestrator.errors import UnknownIdError
from orchestrator.runtime import Orchestrator

FRAMES_PER_SECOND: Final = 8
IDLE_SECONDS: Final = 1
"""How often it is drawn when nothing happens, for the clock."""
ANSWERS: Final = "y once · t in this task · s in this session · n no, and why"


async def show_live(
    orchestrator: Orchestrator, console: Console, *, attended: bool
) -> None:
    """Show the newest tree while it grows, until cancelled.

    Args:
        orchestrator: whose.
        console: where.
        attended: somebody sits there, and answers.
    """
    view = LiveView(orchestrator, console)
    with _keys(attended) as terminal, view.shown(), raising_one_error():
        async with trio.open_nursery() as nursery:
            if terminal is not None:
                nursery.start_soon(
                    terminal.stop_with_ctrl_z, view.take_away, view.put_back
                )
                nursery.start_soon(view.answer_forever, Keys())
            await view.draw_forever()


@contextmanager
def _keys(attended: bool) -> Generator[RawTerminal | None]:
    if not attended:
        yield None
        return
    with raw_terminal() as terminal:
        yield terminal


class LiveView:
    """A picture that follows a run."""

    def __init__(self, orchestrator: Orchestrator, console: Console) -> None:
        self._orchestrator = orchestrator
        self._console = console
        self._is_ascii = is_ascii(console)
        # Rich refreshes from a thread of its own unless told not to.
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._tick = 0
        self._active_at = orchestrator.now()
        self._line: Line | None = None
        self._note = ""

    @contextmanager
    def shown(self) -> Generator[None]:
        with self._live:
            yield

    def take_away(self) -> None:
        self._live.stop()

    def put_back(self) -> None:
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
        sight = Sight(
            tree=tree,
            asks=self._orchestrator.approvals,
            calls=self._orchestrator.calls,
            now=self._orchestrator.now(),
            active_at=self._active_at,
        )
        paper = Paper(
            width=console.width,
            # As high as the screen it would scroll.
            height=max(1, console.height - 1),
            ascii=self._is_ascii,
            tick=self._tick,
        )
        picture = draw(sight, paper, below=self._prompt(sight.asks))
        self._live.update(Group(*picture.lines), refresh=True)

    def _prompt(self, asks: Sequence[Ask]) -> list[Text]:
        if self._line is None or not asks:
            return []
        question = f"{asks[0].tool}: {' '.join(printable(asks[0].subject).split())}"
        return [
            Text(question, style="bold yellow"),
            Text(self._note or ANSWERS, style="dim"),
            self._line.drawn(),
        ]

    async def answer_forever(self, keys: Keys) -> None:
        """Let whoever sits there answer, one question after the other."""
        seen = 0
        while True:
            while asks := self._orchestrator.approvals:
                if not await self._answer(asks[0], keys):
                    return
            seen = await self._orchestrator.wait_changed(after=seen)

    async def _answer(self, ask: Ask, keys: Keys) -> bool:
        """Let one question be answered, and return False if nobody is there any more."""
        self._line, self._note = Line("approve? "), ""
        self.draw()
        answer: tuple[Answer, str] | None = None
        key: str | None = ""
        is_over = False

        async def give_up_when_over(stop: Callable[[], None]) -> None:
            nonlocal is_over
            seen = 0
            while ask.id in {it.id for it in self._orchestrator.approvals}:
                seen = await self._orchestrator.wait_changed(after=seen)
            is_over = True
            stop()

        with raising_one_error():
            async with trio.open_nursery() as nursery:
                stop = nursery.cancel_scope.cancel
                nursery.start_soon(give_up_when_over, stop)
                while answer is None:
                    key = await keys.read()
                    if key is None:
                        answer = (Answer.DENY, "nobody is there to answer")
                        break
                    said = self._line.press(key)
                    if said is not None:
                        answer = understood(said)
                        self._note = (
                            "" if answer else f"{said!r} is no answer: {ANSWERS}"
                        )
                        self._line.text = ""
                    self.draw()
                stop()
        self._line = None
        what = f"{ask.path}  {ask.tool}: {one_line(ask.subject)}"
        if is_over or answer is None:
            line = f"{what} — answered elsewhere, or over"
            self._console.print(Text(line, style="dim"), soft_wrap=True)
            return key is not None
        try:
            await self._orchestrator.answer(
                ask.id, answer[0], reason=answer[1], by="the user"
            )
        except UnknownIdError:
            self._console.print(Text(TOO_LATE, style="dim"), soft_wrap=True)
        else:
            why = f": {answer[1]}" if answer[1] else ""
            line = f"{what} — {answer[0]}{why}"
            self._console.print(Text(line, style="yellow"), soft_wrap=True)
        return key is not None


def newest_tree(orchestrator: Orchestrator) -> Tree | None:
    """Return the newest tree, unless it ended before we came."""
    try:
        return orchestrator.tree(orchestrator.runs[-1]) if orchestrator.runs else None
    except UnknownIdError:
        return None
