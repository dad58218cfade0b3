"""The state of `orchestrator watch`, pure: a key press returns the action to take."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import attrs
from rich.text import Text

from orchestrator.cli.terminal.approvals import question_lines, question_text
from orchestrator.cli.terminal.keyboard import InputLine
from orchestrator.cli.terminal.task_line import Canvas
from orchestrator.cli.terminal.transcript import wrapped
from orchestrator.cli.terminal.tree_frame import RunSnapshot, render_frame
from orchestrator.delegation import Status, TaskId, Tree, one_line
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.delegation.tree import collapse
from orchestrator.delegation.tree.tally import FAILURES
from orchestrator.ports.control import AnswerApproval, Cancel, Pause, Steer

TREE_KEYS: Final = (
    ("Enter", "read"),
    ("x", "cancel"),
    ("m", "tell"),
    ("a/d", "answer"),
    ("f", "failed"),
    ("w", "waiting"),
    ("p", "pause"),
    ("/", "search"),
    ("←→", "fold"),
    ("↑↓", "move"),
)
"""Most important first: the last ones are left out where there is no room."""
TRANSCRIPT_KEYS: Final = (
    ("↑↓", "scroll"),
    ("Esc", "back"),
    ("x", "cancel"),
    ("m", "tell"),
    ("a/d", "answer"),
)
LAST_KEYS: Final = (("?", "help"), ("q", "leave"))
"""The keys that are named at any width."""
HELP: Final = (
    ("↑ ↓  PgUp PgDn  Home End", "move"),
    ("→ ←", "expand and collapse; on … n more, show more of them"),
    ("Enter", "show the transcript of the task; Esc goes back"),
    ("x", "cancel the task and its descendants, after a yes"),
    ("p", "start no new tasks below it, or start them again, after a yes"),
    ("m", "tell it something: it reads that before its next model call"),
    ("a  d", "approve or deny the task's call; without one, the oldest call"),
    ("f  w", "go to the next failed, waiting task"),
    ("/  n", "search names, goals and errors; next match"),
    ("q", "leave; the run goes on"),
    ("", ""),
    ("· ◐ ◔", "queued, running, quiet for a while"),
    ("! ◌", "waits for an approval; idle or interrupted"),
    ("✓ ✗ ⊘", "succeeded; failed; cancelled or refused"),
    ("&  ≥  ~", "detached; a price is unknown; tokens are estimated"),
    ("20↓ ◐3 ✗2", "twenty tasks are hidden below: three run, two failed"),
)


def keys_line(keys: Sequence[tuple[str, str]], width: int) -> Text:
    """Return the keys with their actions, as many as fit a width, and always `LAST_KEYS`."""
    count = len(keys)
    while (line := _line((*keys[:count], *LAST_KEYS))).cell_len > width and count:
        count -= 1
    return line


def _line(keys: Sequence[tuple[str, str]]) -> Text:
    line = Text()
    for key, word in keys:
        line.append(f"{key} ", style="bold")
        line.append(f"{word}  ", style="dim")
    line.rstrip()
    return line


def help_lines() -> list[Text]:
    """Return the help: the action of each key, and the meaning of each sign."""
    width = max(len(keys) for keys, _ in HELP)
    return [
        Text.assemble((f"{keys:<{width}}  ", "bold"), (meaning, "not bold"))
        for keys, meaning in HELP
    ]


READ_ONLY: Final = "read-only: the process of this run cannot be reached"
ENDED: Final = "This run has ended."
FULL_TEXT_HINT: Final = ": Esc, then Enter at the task shows all of it"
RESERVED_LINES: Final = 10
"""The lines of a terminal that a question leaves free."""
MORE_FACTOR: Final = 4
"""The key for more multiplies the number of shown tasks of a group by this factor."""


@attrs.frozen
class ReadTranscript:
    """Show the transcript of a task."""

    task: TaskId


@attrs.frozen
class Quit:
    """Leave the watcher."""


Action: TypeAlias = Cancel | Pause | Steer | AnswerApproval | ReadTranscript | Quit
Scopes: TypeAlias = Literal["y", "t", "s"]
SCOPE_KEYS: Final[dict[str, ApprovalVerdict]] = {
    "y": ApprovalVerdict.ONCE,
    "t": ApprovalVerdict.TASK,
    "s": ApprovalVerdict.SESSION,
}


class WatchState:
    """The view of one watcher, and the input that it waits for."""

    def __init__(self) -> None:
        self.note = ""
        """The result of the last action, in one line."""
        self.can_act = False
        self.shown_task: TaskId | None = None
        """The task whose transcript is shown."""
        self._transcript: Sequence[Text] = ()
        self._wrapped: tuple[int, list[Text]] = (0, [])
        """The width that the transcript is wrapped to, and its lines."""
        self._selected: str | None = None
        self._collapse_state = collapse.CollapseState()
        self._first = 0
        self._rows: Sequence[collapse.CollapsedRow] = ()
        self._selected_index = 0
        """The index of the row that was selected last."""
        self._visible_rows = 10
        self._input_line: InputLine | None = None
        self._on_input: Callable[[str], Action | None] | None = None
        """Takes the typed line, or the key that the watcher waits for."""
        self._question = ""
        self._choices = ""
        self._search_text = ""
        self._snapshot: RunSnapshot | None = None
        self._offset: int | None = None
        """The first visible line of the transcript; None follows its end."""
        self._line_count = 0
        self._shows_help = False

    def set_transcript(self, transcript: Sequence[Text]) -> None:
        """Set the lines of the shown transcript."""
        self._transcript, self._wrapped = transcript, (0, [])

    # Drawing.

    def render(self, snapshot: RunSnapshot, canvas: Canvas, heading: str) -> list[Text]:
        """Return the whole screen: exactly as many lines as the canvas has."""
        self._snapshot = snapshot
        bottom = [canvas.fit(line) for line in self._footer(canvas)]
        canvas = attrs.evolve(canvas, height=max(1, canvas.height - len(bottom)))
        if self._shows_help:
            lines = [canvas.fit(line) for line in help_lines()[: canvas.height]]
        elif self.shown_task is not None:
            lines = self._render_transcript(snapshot, canvas)
        else:
            lines = self._render_tree(snapshot, canvas, heading)
        return [*lines, *[Text("")] * (canvas.height - len(lines)), *bottom]

    def _render_tree(self, snapshot: RunSnapshot, canvas: Canvas, heading: str) -> list[Text]:
        while True:
            frame = render_frame(
                snapshot,
                canvas,
                state=self._collapse_state,
                selected=self._selected,
                first=self._first,
                heading=heading,
            )
            self._rows, self._first = frame.rows, frame.first
            self._visible_rows = max(1, canvas.height - frame.top - 1)
            if any(row.key == self._selected for row in self._rows):
                return frame.lines
            # The selected row is collapsed away: select the one in its place.
            self._select(self._selected_index)

    def _render_transcript(self, snapshot: RunSnapshot, canvas: Canvas) -> list[Text]:
        assert self.shown_task is not None, "a transcript is shown"
        node = snapshot.tree[self.shown_task]
        about = one_line(node.label or node.goal)
        head = Text(f"{node.path}  ", "bold")
        head.append(f"{node.status}  ", "not bold")
        head.append(about, "not bold dim")
        width, lines = self._wrapped
        if width != canvas.width:
            lines = wrapped(self._transcript, canvas.width)
            self._wrapped = (canvas.width, lines)
        self._line_count = len(lines)
        self._visible_rows = max(1, canvas.height - 1)
        last = max(0, len(lines) - self._visible_rows)
        at = last if self._offset is None else min(self._offset, last)
        shown = lines[at : at + self._visible_rows]
        if self._line_count > self._visible_rows:
            seen = min(self._line_count, at + self._visible_rows)
            head.append(f"  {seen:,}/{self._line_count:,} lines", "not bold dim")
        return [canvas.fit(line.copy()) for line in (head, *shown)]

    def _footer(self, canvas: Canvas) -> list[Text]:
        """Return the last lines: an open question, the last result, or the keys."""
        if self._on_input is not None:
            most = max(2, canvas.height - RESERVED_LINES)
            question = question_lines(
                self._question, width=canvas.width, most=most, hint=FULL_TEXT_HINT
            )
            if self._input_line is not None:
                return [*question, self._input_line.render()]
            return [*question, Text(self._choices, style="dim")]
        if self.note:
            return [Text(self.note, style="bold")]
        if self._shows_help:
            return [Text("any key goes back", style="dim")]
        keys = TREE_KEYS if self.shown_task is None else TRANSCRIPT_KEYS
        return [keys_line(keys, canvas.width)]

    # Keys.

    def press(self, key: str) -> Action | None:
        """Take a key, and return the action that it asks for."""
        self.note = ""
        if self._snapshot is None:
            return Quit() if key == "q" else None
        if self._on_input is not None:
            return self._take_input(key, self._on_input)
        if self._shows_help or key == "?":
            self._shows_help = not self._shows_help
        elif key == "q":
            return Quit()
        elif key in {"x", "p", "m", "a", "d"}:
            self._start_action(key, self._snapshot)
        elif self.shown_task is not None:
            self._scroll(key)
        else:
            return self._move(key, self._snapshot)
        return None

    def _take_input(self, key: str, on_input: Callable[[str], Action | None]) -> Action | None:
        """Take a key of the input line, or the one key that was asked for."""
        text: str | None = key
        if key == "escape":
            self._input_line = self._on_input = None
            return None
        if self._input_line is not None:
            text = self._input_line.press(key)
        if text is None:
            return None
        self._input_line = self._on_input = None
        return on_input(text)

    def _ask_line(
        self, question: str, prompt: str, on_input: Callable[[str], Action | None]
    ) -> None:
        self._question, self._input_line, self._on_input = (question, InputLine(prompt), on_input)

    def _ask_key(
        self, question: str, choices: str, on_input: Callable[[str], Action | None]
    ) -> None:
        self._question, self._choices, self._on_input = question, choices, on_input

    @property
    def _task(self) -> TaskId | None:
        """The selected task, or the one whose transcript is shown."""
        if self.shown_task is not None:
            return self.shown_task
        row = self._row
        return row.task if row is not None and row.kind is collapse.RowKind.TASK else None

    @property
    def _row(self) -> collapse.CollapsedRow | None:
        return self._rows[self._index] if self._rows else None

    @property
    def _index(self) -> int:
        keys = (n for n, row in enumerate(self._rows) if row.key == self._selected)
        return next(keys, self._selected_index)

    def _start_action(self, key: str, snapshot: RunSnapshot) -> None:
        if not self.can_act:
            self.note = READ_ONLY if snapshot.tree.tally().unsettled else ENDED
        elif key in {"a", "d"}:
            self._start_answer(key, snapshot)
        elif (task := self._task) is None:
            self.note = "these are several tasks: open them, and choose one"
        elif snapshot.tree[task].ended is not None and not snapshot.tree.tally(task).unsettled:
            self.note = "it has ended already"
        elif key == "x":
            open_, path = (snapshot.tree.tally(task).unsettled, snapshot.tree[task].path)
            others = f" and {open_ - 1:,} below it" if open_ > 1 else ""
            self._ask_key(
                f"Cancel {path}{others}?",
                "y yes, what it has done and cost is kept · n no",
                lambda text: Cancel(task) if text == "y" else None,
            )
        elif key == "p":
            self._start_pause(task, snapshot)
        else:
            self._ask_line(
                f"Tell {snapshot.tree[task].path}, which reads it before its next model call",
                "> ",
                lambda text: Steer(task, text) if text.strip() else None,
            )

    def _start_pause(self, task: TaskId, snapshot: RunSnapshot) -> None:
        path = snapshot.tree[task].path
        pauses = task not in snapshot.paused
        start = "Start no new tasks below" if pauses else "Start tasks again below"
        kept = "what runs goes on" if pauses else "those that wait come first"
        self._ask_key(
            f"{start} {path}?",
            f"y yes, {kept} · n no",
            lambda text: Pause(task, paused=pauses) if text == "y" else None,
        )

    def _start_answer(self, key: str, snapshot: RunSnapshot) -> None:
        """Answer the selected task's question, or else the oldest one."""
        questions = [
            question for question in snapshot.questions if question.task == self._task
        ] or snapshot.questions
        if not questions:
            self.note = "nothing waits for an approval"
            return
        question: ApprovalQuestion = questions[0]
        what = question_text(question)
        if key == "d":
            self._ask_line(
                f"Deny {what}",
                "because: ",
                lambda text: AnswerApproval(question.id, ApprovalVerdict.DENY, text.strip()),
            )
        else:
            self._ask_key(
                f"Approve {what}?",
                "y once · t in this task · s in this session · n not now",
                lambda text: (
                    AnswerApproval(question.id, SCOPE_KEYS[text]) if text in SCOPE_KEYS else None
                ),
            )

    def _scroll(self, key: str) -> None:
        last = max(0, self._line_count - self._visible_rows)
        at = last if self._offset is None else min(self._offset, last)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1}
        pages = {
            "page up": -self._visible_rows,
            "page down": self._visible_rows,
            " ": self._visible_rows,
        }
        if key in {"escape", "left", "enter", "backspace"}:
            self.shown_task, self._offset = None, None
            self.set_transcript(())
        elif key in {"home", "g"}:
            self._offset = 0
        elif key in {"end", "G"}:
            self._offset = None
        elif step := {**steps, **pages}.get(key, 0):
            at = max(0, at + step)
            self._offset = None if at >= last else at

    def _move(self, key: str, snapshot: RunSnapshot) -> Action | None:
        page = max(1, self._visible_rows - 1)
        steps = {
            **dict.fromkeys(("up", "k"), -1),
            **dict.fromkeys(("down", "j"), 1),
            "page up": -page,
            **dict.fromkeys(("page down", " "), page),
            **dict.fromkeys(("home", "g"), -len(self._rows)),
            **dict.fromkeys(("end", "G"), len(self._rows)),
        }
        if key in steps:
            self._select(self._index + steps[key])
        elif key == "enter" and (task := self._task) is not None:
            self.shown_task, self._offset = task, None
            return ReadTranscript(task)
        elif key in {"right", "l", "enter"}:
            self._expand()
        elif key in {"left", "h"}:
            self._collapse()
        else:
            self._handle_find_key(key, snapshot.tree)
        return None

    def _handle_find_key(self, key: str, tree: Tree) -> None:
        match key:
            case "f":
                self._find(tree, _has_failed, "nothing has failed")
            case "w":
                self._find(tree, _is_waiting, "nothing waits")
            case "/":
                self._ask_line("Search names, goals and errors", "/", self._search)
            case "n":
                self._search(self._search_text)
            case _:
                pass

    def _select(self, at: int) -> None:
        if self._rows:
            self._selected_index = min(max(at, 0), len(self._rows) - 1)
            self._selected = self._rows[self._selected_index].key

    def _expand(self) -> None:
        row = self._row
        if row is None:
            return
        if row.kind is collapse.RowKind.MORE:
            whole = row.key.removesuffix("/…")
            shown = MORE_FACTOR * self._collapse_state.shown.get(whole, collapse.SHOWN_PER_GROUP)
            # A group may have thousands of members; the agents below a task are few.
            state = self._collapse_state
            self._collapse_state = state.show(whole, shown) if "/" in whole else state.expand(whole)
        elif row.is_expanded is False:
            self._collapse_state = self._collapse_state.expand(row.key)
        elif row.is_expanded:
            self._select(self._index + 1)

    def _collapse(self) -> None:
        row = self._row
        if row is None:
            return
        if row.is_expanded:
            self._collapse_state = self._collapse_state.collapse(row.key)
            return
        above = (n for n in range(self._index - 1, -1, -1) if self._rows[n].depth < row.depth)
        self._select(next(above, 0))

    def _search(self, words: str) -> None:
        self._search_text = words.strip().lower()
        if self._search_text and self._snapshot is not None:
            self._find(self._snapshot.tree, self._matches_search, f"nothing has {words!r} in it")

    def _matches_search(self, tree: Tree, task: TaskId) -> bool:
        node = tree[task]
        texts = (task, node.path.rpartition("/")[2], node.label, node.goal)
        return any(self._search_text in text.lower() for text in (*texts, node.error))

    def _find(self, tree: Tree, matches: Callable[[Tree, TaskId], bool], otherwise: str) -> None:
        """Select the next task that matches, in the order of delegation."""
        tasks = list(tree)
        row = self._row
        start = tasks.index(row.task) + 1 if row is not None else 0
        for task in (*tasks[start:], *tasks[:start]):
            if matches(tree, task):
                self.reveal(tree, task)
                return
        self.note = otherwise

    def reveal(self, tree: Tree, task: TaskId) -> None:
        """Expand the rows that hide a task, and select it."""
        self._selected = task
        state = self._collapse_state
        child: TaskId = task
        while (parent := tree[child].parent) is not None:
            branch = tree.subtree(parent)
            group = branch.groups[tree[child].agent]
            state = state.expand(parent)
            shown = collapse.SHOWN_PER_GROUP
            while child not in {member.task for member in group.most_important(shown)}:
                shown *= 2
            state = state.show(group.key, max(shown, state.shown.get(group.key, 0)))
            child = parent
        self._collapse_state = state


def _has_failed(tree: Tree, task: TaskId) -> bool:
    return tree[task].status in FAILURES


def _is_waiting(tree: Tree, task: TaskId) -> bool:
    return tree[task].status == Status.WAITING and task != tree.root
