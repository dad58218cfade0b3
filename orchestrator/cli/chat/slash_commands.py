"""The commands of a chat, a line that begins with a slash, and its approval questions."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import attrs
import trio
from rich.text import Text

from orchestrator.agents import Agent, DefinitionError, Usage
from orchestrator.cli.commands.report import report_run
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import journals_of, with_model
from orchestrator.cli.terminal import approvals
from orchestrator.cli.terminal.console import Terminal, print_dim, print_hint
from orchestrator.cli.terminal.style import format_money, format_tokens
from orchestrator.cli.terminal.tree_table import print_tree
from orchestrator.delegation import Mode, TaskId, Tree, one_line
from orchestrator.delegation.events.approvals import ApprovalQuestion, ApprovalVerdict
from orchestrator.ports.errors import OrchestratorError, UnknownIdError
from orchestrator.ports.sessions import Orchestrator, Session


class ApprovalPrompts:
    """The questions of one session, one at a time: an answer fits the shown question."""

    def __init__(self, orchestrator: Orchestrator, session: Session, console: Terminal) -> None:
        self._orchestrator = orchestrator
        self._session = session
        self._console = console
        self._shown: ApprovalQuestion | None = None

    async def show_all(self) -> None:
        """Show each question when the one before it is closed, until the session closes."""
        async for question in self._session.questions:
            self._console.print()
            approvals.show_question(question, self._console, slash="/")
            self._shown = question
            await approvals.wait_question_closed(self._orchestrator, question)
            self._shown = None

    def is_answer(self, line: str) -> bool:
        """Return whether a line without a slash answers the shown question."""
        return self._shown is not None and line.strip().lower() in approvals.ANSWER_WORDS

    async def answer(self, verdict: ApprovalVerdict, reason: str) -> None:
        """Answer the shown question."""
        await trio.lowlevel.checkpoint()
        if self._shown is None:
            print_hint(self._console, "Nothing waits for an approval.")
        else:
            await self._answer(self._shown, verdict, reason)

    async def deny_what_turns_wait_for(self) -> None:
        """Deny each question that a turn waits for, until cancelled: the user has left."""
        seen = 0
        while True:
            for question in self._session.open_questions:
                if self._is_in_turn(question):
                    await self._answer(question, *approvals.UNATTENDED_DENIAL)
            seen = await self._orchestrator.wait_changed(after=seen)

    def _is_in_turn(self, question: ApprovalQuestion) -> bool:
        """Return whether the turn waits for the answer; a detached task can wait longer."""
        tree = self._session.tree
        node = tree[question.task]
        while node.mode == Mode.JOINED and node.parent is not None:
            node = tree[node.parent]
        return node.mode == Mode.ROOT

    async def _answer(
        self, question: ApprovalQuestion, verdict: ApprovalVerdict, reason: str
    ) -> None:
        await trio.lowlevel.checkpoint()
        try:
            await self._session.answer(question.id, verdict, reason=reason, by="the user")
        except UnknownIdError:
            print_hint(self._console, approvals.TOO_LATE)


HELP: Final = {
    "/help": "show this",
    "/tree": "show the tasks of this chat",
    "/cancel [TASK|all]": "stop what runs in the background",
    "/cost": "show tokens and cost, by agent",
    "/model [NAME]": "show the model, or go on with another one",
    "/approve [task|session]": "approve what waits, once or always (/y, /t, /s)",
    "/deny [WHY]": "deny what waits (/n)",
    "/report": "write this chat as an HTML file",
}
WORDS: Final = tuple(usage.split()[0] for usage in HELP)
KEYS: Final = (
    "Ctrl-C stops the answer, Ctrl-D leaves. Up and down go through what you typed, Ctrl-R searches"
    " it. Alt-Enter, or \\ and Enter, begins a new line."
)


@attrs.frozen
class ChangeModel:
    """The chat goes on with another model."""

    agent: Agent[Any]


class SlashCommands:
    """The commands that the user can give in a chat."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        session: Session,
        console: Terminal,
        *,
        agent: Agent[Any],
        journal: str | None,
    ) -> None:
        self.approvals = ApprovalPrompts(orchestrator, session, console)
        self._orchestrator = orchestrator
        self._session = session
        self._console = console
        self._agent = agent
        self._journal = journal
        self._commands: dict[str, Callable[[str], Awaitable[ChangeModel | None]]] = {
            "help": self._help,
            "tree": self._tree,
            "cancel": self._cancel,
            "cost": self._cost,
            "model": self._model,
            "approve": self._approve,
            "deny": partial(self._answer, ApprovalVerdict.DENY),
            "report": self._report,
            **{
                word: partial(self._answer, verdict)
                for word, verdict in approvals.ANSWER_WORDS.items()
            },
        }

    @property
    def model(self) -> str:
        """The name of the model of the agent."""
        model = getattr(self._agent, "model", None)
        name = model if isinstance(model, str) else getattr(model, "name", "")
        return one_line(name or self._agent.name)

    def is_command(self, line: str) -> bool:
        """Return whether a line is a command, and not a message to the agent."""
        return line.startswith("/") or self.approvals.is_answer(line)

    async def handle(self, line: str) -> ChangeModel | None:
        """Execute a command line. A mistake of the user is printed."""
        word, _, rest = line.strip().removeprefix("/").partition(" ")
        await trio.lowlevel.checkpoint()
        if (run := self._commands.get(word.lower())) is None:
            self._say(f"There is no /{word}. {', '.join(WORDS)}; Ctrl-D leaves")
            return None
        try:
            return await run(rest.strip())
        except (CommandError, DefinitionError, OrchestratorError) as exc:
            self._say(f"{exc}")
            return None

    def _say(self, *lines: str) -> None:
        print_dim(self._console, *lines)

    async def _help(self, _: str) -> None:
        await trio.lowlevel.checkpoint()
        width = max(map(len, HELP))
        for usage, meaning in HELP.items():
            self._console.print(Text(f"  {usage:<{width}}  {meaning}"))
        self._console.print(Text(KEYS, style="dim"))

    async def _tree(self, _: str) -> None:
        await trio.lowlevel.checkpoint()
        print_tree(self._session.tree, self._console, now=self._orchestrator.now())

    async def _cost(self, _: str) -> None:
        await trio.lowlevel.checkpoint()
        tree = self._session.tree
        by_agent: dict[str, Usage] = {}
        for task in tree:
            node = tree[task]
            by_agent[node.agent] = by_agent.get(node.agent, Usage()) + node.usage
        rows = [*by_agent.items(), ("all", tree.total)]
        width = max(len(name) for name, _ in rows)
        for name, used in rows:
            style = "bold" if name == "all" else ""
            line = f"  {name:<{width}}  {format_tokens(used):>8} tok  {format_money(used):>10}"
            self._console.print(Text(line, style=style))

    async def _cancel(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        running = background_tasks(self._session.tree)
        if not running:
            self._say("Nothing runs in the background. Ctrl-C stops the answer.")
        elif name == "all" or (not name and len(running) == 1):
            for task in running:
                await self._cancel_one(task)
        elif found := [it for it in running if name and self._is_named(it, name)]:
            await self._cancel_one(found[0])
        else:
            names = (self._session.tree[it].path.rpartition("/")[2] for it in running)
            self._say(f"Say which: /cancel {' | '.join(names)} | all")

    async def _cancel_one(self, task: TaskId) -> None:
        await self._orchestrator.cancel(task)
        self._say(f"cancelled: {self._session.tree[task].path}")

    def _is_named(self, task: TaskId, name: str) -> bool:
        path = self._session.tree[task].path
        return name in (task, path, path.rpartition("/")[2])

    async def _model(self, name: str) -> ChangeModel | None:
        await trio.lowlevel.checkpoint()
        if not name:
            self._say(f"The model of {self._agent.name} is {self.model}.")
            return None
        changed = with_model(self._agent, name)
        self._orchestrator.sessions.registry.models.model_of(changed)  # it must be there
        self._say(f"{self._agent.name} goes on with {name}.")
        return ChangeModel(changed)

    async def _approve(self, scope: str) -> None:
        await trio.lowlevel.checkpoint()
        try:
            verdict = ApprovalVerdict(scope or "once")
        except ValueError:
            self._say("/approve, /approve task or /approve session")
            return
        await self.approvals.answer(verdict, "")

    async def _answer(self, verdict: ApprovalVerdict, reason: str) -> None:
        await self.approvals.answer(verdict, reason)

    async def _report(self, _: str) -> None:
        journals = journals_of(self._journal)
        # Reading a long run, and building its page, takes seconds.
        written = await trio.to_thread.run_sync(report_run, journals, self._session.id)
        self._say(written.sentence, f"written: {written.file}")


def background_tasks(tree: Tree) -> list[TaskId]:
    """Return the detached tasks that have not ended, oldest first."""
    return [task for task in tree if tree[task].mode == Mode.DETACHED and tree[task].ended is None]
