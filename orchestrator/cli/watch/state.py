"""What a watcher sees and does: where they are in the tree, and what each key means.

It only decides: whatever is to happen elsewhere is returned, and somebody else sees to it.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import attrs
from rich.text import Text

from delegation import Status, TaskId, Tree, one_line
from delegation.events.approvals import Answer, Ask
from delegation.tree.collapse import SHOWN, FoldRow, FoldState, Kind
from delegation.tree.tally import FAILURES
from orchestrator.cli.terminal.keyboard import Line
from orchestrator.cli.terminal.questions import in_lines, whole
from orchestrator.cli.terminal.transcript import wrapped
from orchestrator.cli.terminal.tree_frame import Paper, Sight, draw
from orchestrator.control.server import AnswerAsk, Cancel, Steer

KEYS: Final = (
    "↑↓ move ←→ fold Enter read x cancel m tell a/d answer f failed / search q leave"
)
KEYS_THERE: Final = "↑↓ scroll  Esc back  x cancel  m tell  a/d answer  q leave"
READ_ONLY: Final = "read-only: the process that writes this run cannot be talked to"
READ_IT: Final = ": Esc, then Enter at the task shows all of it"
OTHER_LINES: Final = 10
"""How many lines of a terminal are not for a question."""
MORE: Final = 4
"""How many times as many of a group are shown when somebody wants more."""


@attrs.frozen
class Read:
    """Show what a task was told, said and did."""

    task: TaskId


@attrs.frozen
class Leave:
    """Nothing more is wanted."""


Action: TypeAlias = Cancel | Steer | AnswerAsk | Read | Leave
Scopes: TypeAlias = Literal["y", "t", "s"]
SCOPES: Final[dict[str, Answer]] = {
    "y": Answer.ONCE,
    "t": Answer.TASK,
    "s": Answer.SESSION,
}


class Board:
    """Where a watcher is."""

    def __init__(self) -> None:
        self.note = ""
        """What came of the last key."""
        self.can_act = False
        self.reading: TaskId | None = None
        """Whose transcript is shown."""
        self._transcript: Sequence[Text] = ()
        self._wrapped: tuple[int, list[Text]] = (0, [])
        """The transcript in lines, and how wide these are."""
        self._selected: str | None = None
        self._state = FoldState()
        self._first = 0
        self._rows: Sequence[FoldRow] = ()
        self._place = 0
        """Which of the rows was chosen last."""
        self._room = 10
        self._line: Line | None = None
        self._then: Callable[[str], Action | None] | None = None
        """What becomes of the line that is typed, or of the key that is waited for."""
        self._question = ""
        self._choices = ""
        self._searched = ""
        self._sight: Sight | None = None
        self._offset: int | None = None
        """Which line of a transcript is the first; None follows its end."""
        self._lines = 0

    def show(self, transcript: Sequence[Text]) -> None:
        """Take what the task has said and done whose transcript is read."""
        self._transcript, self._wrapped = transcript, (0, [])

    # What is seen.

    def picture(self, sight: Sight, paper: Paper, heading: str) -> list[Text]:
        """Return what the watcher sees, in just as many lines as there are."""
        self._sight = sight
        bottom = [paper.fitted(line) for line in self._bottom(paper)]
        paper = attrs.evolve(paper, height=max(1, paper.height - len(bottom)))
        if self.reading is not None:
            lines = self._page(sight, paper)
        else:
            lines = self._tree(sight, paper, heading)
        return [*lines, *[Text("")] * (paper.height - len(lines)), *bottom]

    def _tree(self, sight: Sight, paper: Paper, heading: str) -> list[Text]:
        while True:
            picture = draw(
                sight,
                paper,
                state=self._state,
                selected=self._selected,
                first=self._first,
                heading=heading,
            )
            self._rows, self._first = picture.rows, picture.first
            self._room = max(1, paper.height - picture.top - 1)
            if any(row.key == self._selected for row in self._rows):
                return picture.lines
            # Where the watcher was is folded away: what is there now is as good.
            self._select(self._place)

    def _page(self, sight: Sight, paper: Paper) -> list[Text]:
        assert self.reading is not None, "somebody reads it"
        node = sight.tree[self.reading]
        about = one_line(node["label"] or node["goal"])
        head = Text(f"{node['path']}  ", "bold")
        head.append(f"{node['status']}  ", "not bold")
        head.append(about, "not bold dim")
        width, lines = self._wrapped
        if width != paper.width:
            lines = wrapped(self._transcript, paper.width)
            self._wrapped = (paper.width, lines)
        self._lines = len(lines)
        self._room = max(1, paper.height - 1)
        last = max(0, len(lines) - self._room)
        at = last if self._offset is None else min(self._offset, last)
        shown = lines[at : at + self._room]
        if self._lines > self._room:
            seen = min(self._lines, at + self._room)
            head.append(f"  {seen:,}/{self._lines:,} lines", "not bold dim")
        return [paper.fitted(line.copy()) for line in (head, *shown)]

    def _bottom(self, paper: Paper) -> list[Text]:
        """Return the last lines: what is asked of the watcher, or what came of it, or keys."""
        if self._then is not None:
            most = max(2, paper.height - OTHER_LINES)
            question = in_lines(
                self._question, width=paper.width, most=most, hint=READ_IT
            )
            if self._line is not None:
                return [*question, self._line.drawn()]
            return [*question, Text(self._choices, style="dim")]
        if self.note:
            return [Text(self.note, style="bold")]
        return [Text(KEYS if self.reading is None else KEYS_THERE, style="dim")]

    # What is done.

    def press(self, key: str) -> Action | None:
        """Take a key, and return what is to happen elsewhere."""
        self.note = ""
        if self._sight is None:
            return Leave() if key == "q" else None
        if self._then is not None:
            return self._answer(key, self._then)
        if key == "q":
            return Leave()
        if key in {"x", "m", "a", "d"}:
            self._begin_to_act(key, self._sight)
            return None
        if self.reading is not None:
            self._scroll(key)
            return None
        return self._move(key, self._sight)

    def _answer(self, key: str, then: Callable[[str], Action | None]) -> Action | None:
        """Take a key of a line, or the one key that was asked for."""
        said: str | None = key
        if key == "escape":
            self._line = self._then = None
            return None
        if self._line is not None:
            said = self._line.press(key)
        if said is None:
            return None
        self._line = self._then = None
        return then(said)

    def _ask_line(
        self, question: str, prompt: str, then: Callable[[str], Action | None]
    ) -> None:
        self._question, self._line, self._then = question, Line(prompt), then

    def _ask_key(
        self, question: str, choices: str, then: Callable[[str], Action | None]
    ) -> None:
        self._question, self._choices, self._then = question, choices, then

    @property
    def _task(self) -> TaskId | None:
        """The task that the watcher is at."""
        if self.reading is not None:
            return self.reading
        row = self._row
        return row.task if row is not None and row.kind is Kind.TASK else None

    @property
    def _row(self) -> FoldRow | None:
        return self._rows[self._at] if self._rows else None

    @property
    def _at(self) -> int:
        keys = (n for n, row in enumerate(self._rows) if row.key == self._selected)
        return next(keys, self._place)

    def _begin_to_act(self, key: str, sight: Sight) -> None:
        if not self.can_act:
            self.note = READ_ONLY
        elif key in {"a", "d"}:
            self._begin_to_answer(key, sight)
        elif (task := self._task) is None:
            self.note = "these are several tasks: open them, and choose one"
        elif sight.tree[task]["ended"] is not None and not sight.tree.tally(task).open:
            self.note = "it has ended already"
        elif key == "x":
            open_, path = sight.tree.tally(task).open, sight.tree[task]["path"]
            others = f" and {open_ - 1:,} below it" if open_ > 1 else ""
            self._ask_key(
                f"Cancel {path}{others}?",
                "y yes, what it has done and cost is kept · n no",
                lambda said: Cancel(task) if said == "y" else None,
            )
        else:
            self._ask_line(
                f"Tell {sight.tree[task]['path']}, which reads it before its next model call",
                "> ",
                lambda said: Steer(task, said) if said.strip() else None,
            )

    def _begin_to_answer(self, key: str, sight: Sight) -> None:
        """Answer what the chosen task asks, or else the oldest question."""
        asks = [ask for ask in sight.asks if ask.task == self._task] or sight.asks
        if not asks:
            self.note = "nothing waits for an approval"
            return
        ask: Ask = asks[0]
        what = whole(ask)
        if key == "d":
            self._ask_line(
                f"Deny {what}",
                "because: ",
                lambda said: AnswerAsk(ask.id, Answer.DENY, said.strip()),
            )
        else:
            self._ask_key(
                f"Approve {what}?",
                "y once · t in this task · s in this session · n not now",
                lambda said: (
                    AnswerAsk(ask.id, SCOPES[said]) if said in SCOPES else None
                ),
            )

    def _scroll(self, key: str) -> None:
        last = max(0, self._lines - self._room)
        at = last if self._offset is None else min(self._offset, last)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1}
        pages = {"page up": -self._room, "page down": self._room, " ": self._room}
        if key in {"escape", "left", "enter", "backspace"}:
            self.reading, self._offset = None, None
            self.show(())
        elif key in {"home", "g"}:
            self._offset = 0
        elif key in {"end", "G"}:
            self._offset = None
        elif step := {**steps, **pages}.get(key, 0):
            at = max(0, at + step)
            self._offset = None if at >= last else at

    def _move(self, key: str, sight: Sight) -> Action | None:
        page = max(1, self._room - 1)
        steps = {
            **dict.fromkeys(("up", "k"), -1),
            **dict.fromkeys(("down", "j"), 1),
            "page up": -page,
            **dict.fromkeys(("page down", " "), page),
            **dict.fromkeys(("home", "g"), -len(self._rows)),
            **dict.fromkeys(("end", "G"), len(self._rows)),
        }
        if key in steps:
            self._select(self._at + steps[key])
        elif key == "enter" and (task := self._task) is not None:
            self.reading, self._offset = task, None
            return Read(task)
        elif key in {"right", "l", "enter"}:
            self._open()
        elif key in {"left", "h"}:
            self._close()
        else:
            self._look_for(key, sight.tree)
        return None

    def _look_for(self, key: str, tree: Tree) -> None:
        match key:
            case "f":
                self._find(tree, _has_failed, "nothing has failed")
            case "w":
                self._find(tree, _waits, "nothing waits")
            case "/":
                self._ask_line("Search names, goals and errors", "/", self._search)
            case "n":
                self._search(self._searched)
            case _:
                pass

    def _select(self, at: int) -> None:
        if self._rows:
            self._place = min(max(at, 0), len(self._rows) - 1)
            self._selected = self._rows[self._place].key

    def _open(self) -> None:
        row = self._row
        if row is None:
            return
        if row.kind is Kind.MORE:
            whole = row.key.removesuffix("/…")
            shown = MORE * self._state.shown.get(whole, SHOWN)
            # Those of a group are many, those of a task are not.
            state = self._state
            self._state = (
                state.show(whole, shown) if "/" in whole else state.open(whole)
            )
        elif row.is_open is False:
            self._state = self._state.open(row.key)
        elif row.is_open:
            self._select(self._at + 1)

    def _close(self) -> None:
        row = self._row
        if row is None:
            return
        if row.is_open:
            self._state = self._state.close(row.key)
            return
        above = (
            n for n in range(self._at - 1, -1, -1) if self._rows[n].depth < row.depth
        )
        self._select(next(above, 0))

    def _search(self, words: str) -> None:
        self._searched = words.strip().lower()
        if self._searched and self._sight is not None:
            self._find(self._sight.tree, self._is_meant, f"nothing has {words!r} in it")

    def _is_meant(self, tree: Tree, task: TaskId) -> bool:
        node = tree[task]
        texts = (task, node["path"].rpartition("/")[2], node["label"], node["goal"])
        return any(self._searched in text.lower() for text in (*texts, node["error"]))

    def _find(
        self, tree: Tree, is_meant: Callable[[Tree, TaskId], bool], otherwise: str
    ) -> None:
        """Go to the next task of a kind, in the order in which they were asked for."""
        tasks = list(tree.graph)
        row = self._row
        start = tasks.index(row.task) + 1 if row is not None else 0
        for task in (*tasks[start:], *tasks[:start]):
            if is_meant(tree, task):
                self.reveal(tree, task)
                return
        self.note = otherwise

    def reveal(self, tree: Tree, task: TaskId) -> None:
        """Open whatever hides a task, and go there."""
        self._selected = task
        state = self._state
        child: TaskId = task
        while (parent := tree[child]["parent"]) is not None:
            branch = tree.branch(parent)
            group = branch.groups[tree[child]["agent"]]
            state = state.open(parent)
            shown = SHOWN
            while child not in {it.task for it in group.matter(shown)}:
                shown *= 2
            state = state.show(group.key, max(shown, state.shown.get(group.key, 0)))
            child = parent
        self._state = state


def _has_failed(tree: Tree, task: TaskId) -> bool:
    return tree[task]["status"] in FAILURES


def _waits(tree: Tree, task: TaskId) -> bool:
    return tree[task]["status"] == Status.WAITING and task != tree.root
