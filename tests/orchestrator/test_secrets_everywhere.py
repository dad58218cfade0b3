"""A key is planted in every path through the house; then all files are read, byte by byte."""

import base64
import json
import os
import sqlite3
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from orchestrator import Machine, MemoryJournal, Orchestrator, RunFailedError, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Model,
    ModelError,
    ModelRequest,
    Part,
    Sandbox,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolMessage,
    Transcript,
    UserMessage,
    allow,
    confirm,
    tool,
)
from orchestrator.agents.models.providers.scripted import ScriptStep
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.tools.files import FILES
from orchestrator.agents.tools.long_results import Spill
from orchestrator.agents.tools.terminal import process, terminal
from orchestrator.delegation import (
    DeliveryCapability,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
    encode,
)
from orchestrator.delegation.events import (
    Event,
    MessageReceived,
    MetadataChanged,
    ModelAnswered,
    SessionOpened,
    StateChanged,
    TaskRequested,
    TaskSettled,
    ToolAnswered,
)
from orchestrator.delegation.session_context import bind_session
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.task import Ending
from orchestrator.kernel.journal.fact_redaction import FactRedactor
from orchestrator.products.history.replay.run import replay
from tests.kit import FunctionModel, hand_on
from tests.orchestrator.commands_kit import pipe

pytestmark = pytest.mark.realtime

PIN = "47-tulip-11"
PASSWORD = "correct-horse-battery"
ENVIRON = {"LEGACY_PIN": PIN, "DB_PASSWORD": PASSWORD}
BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj"


class Field:
    """Where keys are planted, and looked for."""

    def __init__(self, home: Path, elsewhere: Path) -> None:
        self.home = home
        self.elsewhere = elsewhere
        self.journal = home / "state" / "journal.db"
        self.planted: dict[str, str] = {"$LEGACY_PIN": PIN, "$DB_PASSWORD": PASSWORD}
        """Each secret, by where it was planted."""
        self.seen: list[str] = []
        """All that a model was asked."""
        self.got: list[str] = []
        """The texts that left the process."""

    def plant(self, place: str) -> str:
        """Return a text with a secret of every kind, and remember them."""
        number = len(self.planted)
        key = f"sk-proj-{number:03}Ab12Cd34Ef56Gh78Ij90"
        bearer = f"{number:03}.Zy98Xw76Vu54Ts32.Rq10"
        password = f"hunter{number:03}X9zQ"
        body = f"{BODY}{number:03}{BODY}"
        self.planted |= {
            f"{place}, a key": key,
            f"{place}, a bearer": bearer,
            f"{place}, a password": password,
            f"{place}, a private key": body,
        }
        return (
            f"{place}: use {key} and\nAuthorization: Bearer {bearer}\n"
            f"password={password}\nthe pin is {PIN}, and {PASSWORD} opens the rest\n"
            f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\nthat is all\n"
        )

    def plant_file(self, place: str) -> Path:
        """Return a file with secrets, which the test does not read afterwards."""
        file = self.elsewhere / f"{len(self.planted)}.txt"
        file.write_text(self.plant(place))
        return file

    def open(self, **more: Any) -> AbstractAsyncContextManager[Orchestrator]:
        return open_orchestrator(
            self.journal,
            **more,
            machine=Machine(workspace=self.home, secrets=["LEGACY_PIN"], environ=self.environ),
        )

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "ORCHESTRATOR_HOME": str(self.home / "state"),
            **ENVIRON,
        }

    def model(self, *steps: ScriptStep) -> Model:
        script = ScriptedModel(steps)

        async def see(request: ModelRequest) -> AssistantMessage:
            self.seen += map(_words, request.transcript)
            return await script.answer(request)

        return FunctionModel(see)

    def files(self) -> Iterator[Path]:
        for path in self.home.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield path

    def leaks(self) -> list[str]:
        """Return each secret that is in a file, as it is or as base64, and in which."""
        found: list[str] = []
        for file in self.files():
            data = file.read_bytes()
            found += [
                f"{place} in {file.name}"
                for place, secret in self.planted.items()
                if any(form in data for form in _forms(secret))
            ]
        return found

    def told(self) -> list[str]:
        """Return each secret that a model or a client received."""
        said = "\n".join([*self.seen, *self.got])
        return [place for place, secret in self.planted.items() if secret in said]


def _forms(secret: str) -> list[bytes]:
    raw = secret.encode()
    # In the middle of something else, base64 begins at one of three places.
    parts = [base64.b64encode(raw[skip:])[:-4] for skip in range(3)]
    return [raw, *(part for part in parts if len(part) >= 12)]


def _words(said: Any) -> str:
    match said:
        case UserMessage(text, parts):
            return "\n".join([text, *(str(part.data) + part.url for part in parts)])
        case AssistantMessage(text, calls):
            return "\n".join([text, *(f"{it.name} {it.arguments}" for it in calls)])
        case _:
            return str(said.text)


@pytest.fixture
def field(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Field:
    return Field(tmp_path, tmp_path_factory.mktemp("elsewhere"))


def last(transcript: Transcript) -> str:
    return transcript[-1].text


Path_ = Callable[[Field, Orchestrator], Awaitable[None]]
PATHS: dict[str, Path_] = {}


def a_path(walk: Path_) -> Path_:
    PATHS[walk.__name__.removeprefix("_").replace("_", " ")] = walk
    return walk


@a_path
async def _the_user_says_it(field: Field, orchestrator: Orchestrator) -> None:
    agent = Agent("parrot", model=field.model(last, last))
    run = await orchestrator.run(agent, field.plant("a goal"))
    field.got += [run.output, repr(run.outcome), run.tree.to_text()]
    async with orchestrator.open_session(agent) as session:
        field.got.append((await session.ask(field.plant("a message"))).text)


@a_path
async def _it_is_in_a_file_that_the_user_sends(field: Field, orchestrator: Orchestrator) -> None:
    agent = Agent("parrot", model=field.model("read"))
    parts = [
        Part("text/plain", data=field.plant("a text").encode(), name="a.txt"),
        Part("application/toml", data=field.plant("settings").encode()),
        # A known one at its very beginning is found in base64, which must stay base64.
        Part("text/plain", data=f"{PASSWORD}, and more".encode()),
        Part("image/png", url="https://ann:hunter2hunter2@example.org/a.png"),
    ]
    field.planted["an address"] = "hunter2hunter2"
    run = await orchestrator.run(agent, "look", *parts)
    assert run.outcome.succeeded
    assert "that is all" in "".join(field.seen)


@a_path
async def _it_is_handed_on(field: Field, orchestrator: Orchestrator) -> None:
    child = Agent("child", model=field.model(last, field.plant("a result")))
    call = ToolCall(
        "delegate_task",
        {
            "tasks": [
                {
                    "agent": "child",
                    "goal": field.plant("a task"),
                    "context": field.plant("its context"),
                    "label": f"label-{field.plant('a label').split()[3]}",
                },
                {"agent": "child", "goal": "plain"},
            ]
        },
    )
    look = ToolCall("task", {"action": "list"})
    parent = Agent("parent", model=field.model(call, look, "ok", last, last), delegates=[child])
    run = await orchestrator.run(parent, "go")
    field.got += [run.output, run.tree.to_text(), run.tree.to_mermaid()]
    async with orchestrator.open_session(
        Agent(
            "boss",
            model=field.model(hand_on("quietly", agent="child"), "begun", last),
            delegates=[Agent("child", model=field.model(field.plant("detached work")))],
        )
    ) as session:
        await session.ask("go")
        field.got.append((await session.replies.receive()).text)


@a_path
async def _the_model_says_it(field: Field, orchestrator: Orchestrator) -> None:
    got: list[str] = []

    @tool
    def login(user: str, password: str, note: str) -> str:
        """Log in."""
        got.append(f"{password} {note}")
        return f"{user} is in"

    said = field.plant("an argument")
    field.planted["under a telling name"] = "aB3-plain-words-9"
    call = ToolCall("login", {"user": "ann", "password": "aB3-plain-words-9", "note": said})
    text = field.plant("a final answer")
    model = field.model(call, ToolCall(said.split()[3], {}), text)
    run = await orchestrator.run(Agent("login", model=model, tools=[login]), "go")
    field.got.append(run.output)
    # The tool gets what the model wrote.
    assert got == [f"aB3-plain-words-9 {said}"]


@a_path
async def _a_tool_says_it(field: Field, orchestrator: Orchestrator) -> None:
    @tool
    def answer() -> dict[str, str]:
        """Answer with it."""
        return {"text": field.plant("an answer"), "pin": PIN}

    @tool
    def refuse() -> str:
        """Refuse with it."""
        raise ToolError(field.plant("a refusal"))

    calls = [ToolCall("answer"), ToolCall("refuse")]
    model = field.model(calls, last)
    agent = Agent("teller", model=model, tools=[answer, refuse])
    field.got.append((await orchestrator.run(agent, "go")).output)


@a_path
async def _a_tool_fails_with_it(field: Field, orchestrator: Orchestrator) -> None:
    @tool
    def crash() -> str:
        """Fail."""
        raise RuntimeError(field.plant("an exception"))

    agent = Agent("crasher", model=field.model(ToolCall("crash")), tools=[crash])
    run = await orchestrator.run(agent, "go")
    with pytest.raises(RunFailedError) as caught:
        _ = run.output
    field.got += [str(caught.value), repr(caught.value), repr(run.outcome)]
    field.got += [run.tree.to_text(), run.tree.to_mermaid()]


@a_path
async def _a_provider_fails_with_it(field: Field, orchestrator: Orchestrator) -> None:
    error = ModelError(field.plant("an error of a provider"), partial=field.plant("half an answer"))
    run = await orchestrator.run(Agent("unlucky", model=field.model(error)), "go")
    with pytest.raises(RunFailedError) as caught:
        _ = run.output
    field.got += [str(caught.value), repr(run.outcome)]


@a_path
async def _it_is_in_an_answer_that_does_not_fit(field: Field, orchestrator: Orchestrator) -> None:
    text = field.plant("an answer of the wrong kind")
    agent = Agent("typed", model=field.model(text, text), output=list[int])
    run = await orchestrator.run(agent, "go")
    with pytest.raises(RunFailedError) as caught:
        _ = run.output
    field.got += [str(caught.value), repr(run.outcome)]


@a_path
async def _it_is_in_a_long_answer(field: Field, orchestrator: Orchestrator) -> None:
    for at in ("begin", "middle", "end"):
        spill = Spill(field.home / "spill" / at)

        @tool(limit=1_000, spill=spill)
        def pour() -> str:
            """Say more than fits."""
            said = field.plant(f"the {at} of a long answer")  # noqa: B023
            pad = "lorem ipsum\n" * 300
            return {"begin": said + pad, "end": pad + said}.get(
                at,  # noqa: B023
                pad + said + pad,
            )

        agent = Agent("pourer", model=field.model(ToolCall("pour"), last), tools=[pour])
        field.got.append((await orchestrator.run(agent, "go")).output)
    files = list((field.home / "spill").rglob("*.txt"))
    assert len(files) == 3
    assert all("that is all" in file.read_text() for file in files)


@a_path
async def _somebody_steers_with_it(field: Field, orchestrator: Orchestrator) -> None:
    entered, told = trio.Event(), trio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        entered.set()
        await told.wait()
        return "go on"

    agent = Agent("held", model=field.model(ToolCall("hold"), last), tools=[hold])
    async with orchestrator.open_session(agent) as session:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                field.got.append((await session.ask("go")).text)

            await entered.wait()
            await orchestrator.steer(session.id, field.plant("steering"))
            told.set()
    assert "steering: use ***" in "".join(field.seen)


@a_path
async def _a_command_prints_it(field: Field, orchestrator: Orchestrator) -> None:
    file = field.plant_file("a command")
    commands = [
        f"cat {file}; exit 3",
        'echo "in the environment: [$DB_PASSWORD$LEGACY_PIN]"',
        f"echo '{field.plant('a command line')}'",
        f"base64 -w0 {field.elsewhere}/pin",
    ]
    (field.elsewhere / "pin").write_text(f"{PASSWORD}\n")
    calls = [ToolCall("terminal", {"command": it}) for it in commands]
    model = field.model(*calls, last)
    agent = Agent(
        "sh",
        model=model,
        tools=[terminal],
        approve=[allow("*")],
        sandbox=Sandbox(write=[field.elsewhere]),
    )
    run = await orchestrator.run(agent, "go")
    field.got.append(run.output)
    assert "in the environment: []" in "".join(field.seen)


@a_path
async def _a_command_in_the_background_prints_it(field: Field, orchestrator: Orchestrator) -> None:
    file = field.plant_file("a watched command")
    with pipe(field.elsewhere / "go") as go:
        command = f"read _ < {field.elsewhere}/go; cat {file}"
        watching = {"command": command, "background": True, "watch_patterns": ["password="]}
        model = field.model(
            ToolCall("terminal", watching),
            "begun",
            *map(_looking, ("poll", "log", "list")),
            last,
            last,
        )
        agent = Agent(
            "sh",
            model=model,
            tools=[terminal, process],
            approve=[allow("*")],
            sandbox=Sandbox(write=[field.elsewhere]),
        )
        async with orchestrator.open_session(agent) as session:
            await session.ask("go")
            go.send()
            field.got.append((await session.replies.receive()).text)
            await session.wait_idle()
    assert "password=***" in "".join(field.seen)


def _looking(action: str) -> ScriptStep:
    """Return the step in which a model looks at the command that it has started."""
    return lambda said: ToolCall("process", {"action": action, "id": _id(said)})


def _id(transcript: Transcript) -> str:
    started = next(it for it in transcript if isinstance(it, ToolMessage))
    return str(json.loads(started.text)["id"])


@a_path
async def _somebody_is_asked_about_it(field: Field, orchestrator: Orchestrator) -> None:
    ran: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send something."""
        ran.append(text)
        return "sent"

    said = field.plant("a question")
    calls = [ToolCall("send", {"text": said}), ToolCall("send", {"text": said})]
    agent = Agent(
        "sender", model=field.model(*calls, last), tools=[send], approve=[confirm("send")]
    )
    async with orchestrator.open_session(agent) as session:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def _() -> None:
                field.got.append((await session.ask("go")).text)

            for answer in ("once", "deny"):
                question = await session.questions.receive()
                field.got.append(repr(question))
                await session.answer(
                    question.id,
                    answer,
                    reason=field.plant(f"a reason to {answer}"),
                    by=field.plant("a name"),
                )
    assert ran == [said]
    assert "was denied by a name" in "".join(field.seen)


@a_path
async def _it_is_in_a_file(field: Field, orchestrator: Orchestrator) -> None:
    """A file of the workspace may hold it; what is read of it goes nowhere else."""
    workspace = field.elsewhere / "work"
    workspace.mkdir()
    (workspace / "settings.ini").write_text(field.plant("a file"))
    calls = [
        ToolCall("read_file", {"path": "settings.ini"}),
        ToolCall("search_files", {"pattern": "password"}),
        ToolCall("edit_file", {"path": "settings.ini", "old": "password", "new": "x"}),
        ToolCall("write_file", {"path": "settings.ini", "content": "password=***\n"}),
    ]
    model = field.model(*calls, last)
    agent = Agent("reader", model=model, tools=FILES, approve=[allow("*")], workspace=workspace)
    field.got.append((await orchestrator.run(agent, "go")).output)


@a_path
async def _it_is_in_what_is_said_of_a_session(field: Field, orchestrator: Orchestrator) -> None:
    field.planted["a user"] = key = "sk-proj-Us12Cd34Ef56Gh78Ij90"
    agent = Agent("shell", model=field.model("ok"))
    with bind_session(user_name=f"Ann ({key})"):
        await orchestrator.run(agent, "go")


@a_path
async def _a_door_fails_with_it(field: Field, orchestrator: Orchestrator) -> None:
    said = field.plant("an error of a door")
    agent = Agent("parrot", model=field.model("ok"))
    async with orchestrator.open_session(agent) as session:
        deliver, left = session.deliver, [RuntimeError(said)]

        async def fail_once(reply: Any) -> None:
            if left:
                raise left.pop()
            await deliver(reply)

        session.deliver = fail_once  # type: ignore[method-assign]
        assert (await session.ask("go")).text == "ok"


@a_path
async def _it_is_forked(field: Field, orchestrator: Orchestrator) -> None:
    said = field.plant("what a fork goes on from")
    child = Agent("child", model=field.model(last, last))
    call = hand_on(said, agent="child")
    parent = Agent("parent", model=field.model(call, last, last), delegates=[child])
    run = await orchestrator.run(parent, said)
    fork = await orchestrator.fork(parent, run.id, task="/parent/child[1]")
    field.got += [fork.output, fork.tree.to_text()]


@pytest.mark.parametrize("path", PATHS)
async def test_a_secret_leaks_on_no_path(field: Field, path: str) -> None:
    """Not in a file, while it is written or after; not for a model; not for the client."""
    async with field.open() as orchestrator:
        await PATHS[path](field, orchestrator)
        sessions = list(orchestrator.runs)
        assert field.leaks() == []
        # What is still only in the log of the database.
        assert any(file.name.endswith("-wal") for file in field.files())
    assert len(field.planted) > 2
    assert field.leaks() == []
    assert field.told() == []
    assert b"***" in b"".join(file.read_bytes() for file in field.files())

    # Nothing comes back after a restart, and the database has no other place for it.
    field.got.clear()
    async with field.open() as orchestrator:
        for session in sessions:
            tree = await orchestrator.read_tree(session)
            field.got += [tree.to_text(), tree.to_mermaid()]
    with sqlite3.connect(field.journal) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        field.got += connection.iterdump()
    connection.close()
    assert field.leaks() == []
    assert field.told() == []


SHOWN = """
import os
from orchestrator.agents import Agent, ModelError, ScriptedModel, ToolCall, tool

SAID = open(os.environ["SAID"]).read()

@tool
def crash() -> str:
    raise RuntimeError(SAID)

child = Agent("child", model=ScriptedModel([SAID, ToolCall("crash"), SAID]), tools=[crash])
call = ToolCall(
    "delegate_task", {"tasks": [{"goal": SAID, "agent": "child"}] * 2, "background": True}
)
boss = Agent("boss", model=ScriptedModel([call, SAID, SAID]), delegates=[child])
"""


def test_the_command_line_shows_no_secret(field: Field, python: list[str]) -> None:
    file = field.plant_file("the command line")
    (field.elsewhere / "agents.py").write_text(SHOWN)
    agents = f"{field.elsewhere / 'agents.py'}:boss"
    environ = {**field.environ, "SAID": str(file), "COLUMNS": "1000"}
    environ |= {"PYTHONPATH": os.getcwd()}  # noqa: PTH109 (as the shell has it)

    def orchestrator(*arguments: str, code: int) -> str:
        done = subprocess.run(
            [*python, "-m", "orchestrator", *arguments],
            cwd=field.home,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    said = field.plant("a goal")
    # What no variable says is known by its looks alone: that is all the command line has.
    said = said.replace(PIN, "that")
    file.write_text(file.read_text().replace(PIN, "that"))
    field.got += [
        orchestrator("run", agents, said, code=0),
        orchestrator("runs", code=0),
        orchestrator("tree", code=0),
        orchestrator("export", "--format", "mermaid", code=0),
        orchestrator("doctor", code=0),
        orchestrator("replay", agents, code=0),
    ]
    assert all(field.got)
    assert field.told() == []
    assert field.leaks() == []
    assert "***" in "".join(field.got)


async def test_a_run_with_secrets_is_the_same_when_it_is_replayed(field: Field) -> None:
    journal = MemoryJournal()

    def team() -> Agent:
        child = Agent("child", model=ScriptedModel([last]))
        call = hand_on(said, agent="child")
        return Agent("parent", model=ScriptedModel([call, last]), delegates=[child])

    said = field.plant("a goal")
    async with open_orchestrator(
        journal, machine=Machine(secrets=["LEGACY_PIN"], environ=field.environ)
    ) as orchestrator:
        await orchestrator.run(team(), said)

    replayed = await replay(journal.entries, team(), environ={})
    assert replayed.difference is None


async def test_a_call_with_a_redacted_secret_is_not_run_after_a_crash(field: Field) -> None:
    """The journal does not have the secret, so the call cannot be repeated."""
    journal = MemoryJournal()
    ran: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send something."""
        ran.append(text)
        return "sent"

    def sender(*steps: ScriptStep) -> Agent:
        model = ScriptedModel(steps)
        return Agent("sender", model=model, tools=[send], approve=[confirm("send")])

    call = ToolCall("send", {"text": "password=hunter2X9zQ"})
    async with open_orchestrator(journal, machine=Machine(environ=field.environ)) as orchestrator:
        async with orchestrator.open_session(sender(call)) as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.ask, "go")
                await session.questions.receive()
                nursery.cancel_scope.cancel()
    async with open_orchestrator(
        journal, machine=Machine(sandbox="none", environ=field.environ)
    ) as orchestrator:
        async with orchestrator.open_session(sender(last, "ok"), session=session.id) as again:
            # By now it waits at the gate again, or has been told that it cannot.
            await trio.testing.wait_all_tasks_blocked(0.05)
            for question in again.open_questions:
                await again.answer(question.id, "once")
            reply = await again.replies.receive()

    assert ran == []
    assert "secret" in reply.text


# The ids and words by which facts hang together


def request(**more: Any) -> TaskRequest:
    return TaskRequest(
        id=TaskId("t_12345678"),
        parent=TaskId("t_00001234"),
        origin=Origin(session=SessionId("r_1234"), turn=1, capability=DeliveryCapability.PUSH),
        call="call_1234#0",
        agent="postgres",
        **more,
    )


@pytest.mark.parametrize(
    ("secret", "event"),
    [
        ("1234", SessionOpened(SessionId("r_1234"), "a")),
        ("postgres", SessionOpened(SessionId("r_1"), "postgres")),
        ("1234", TaskSettled(TaskId("t_1234"), Outcome(Ending.SUCCEEDED))),
        ("succeeded", TaskSettled(TaskId("t_1"), Outcome(Ending.SUCCEEDED))),
        ("ending", TaskSettled(TaskId("t_1"), Outcome(Ending.SUCCEEDED))),
        ("1234", ToolAnswered(TaskId("t_1"), ToolMessage("call_1234", "ok"))),  # type: ignore[arg-type]
        ("detached", TaskRequested(request(goal="g"), Mode.DETACHED, Reason.ASKED_TO_WAIT)),
        ("wait", TaskRequested(request(goal="g"), Mode.DETACHED, Reason.ASKED_TO_WAIT)),
        ("1234", TaskRequested(request(goal="g"), Mode.DETACHED, Reason.ASKED_TO_WAIT)),
        ("postgres", TaskRequested(request(goal="g"), Mode.DETACHED, Reason.ASKED_TO_WAIT)),
        ("text", MessageReceived(SessionId("r_1"), "", (Part("text/plain", data=b"x"),))),
        ("response", SessionOpened(SessionId("r_1"), "a", kind=SessionKind.RESPONSE)),
        ("order", SessionOpened(SessionId("r_1"), "a", states={"order": {"orders": 7}})),
        ("order", StateChanged(SessionId("r_1"), "order", {"orders": 7})),
    ],
    ids=lambda it: it if isinstance(it, str) else type(it).__name__,
)
def test_a_short_secret_does_not_tear_facts_apart(secret: str, event: Event) -> None:
    """A four-digit pin is in one id of some thousand, and a weak password may be a name."""
    redactor = Redactor([secret])
    assert redactor.may_hold_secret(encode(event).body)

    kept, encoded = FactRedactor(redactor).encode(event)

    assert kept == event
    assert encoded == encode(event)


def test_secrets_in_states_and_metadata_are_redacted() -> None:
    redactor = FactRedactor(Redactor(["hunter2X9zQ"]))
    session = SessionId("r_1")
    said, kept = "I am hunter2X9zQ.", "I am ***."
    states = {"order": {"guest": said, "drinks": {"1": {"name": said}}, "table": 7}}
    opened = SessionOpened(session, "a", states=states, metadata={"note": said})

    event, _ = redactor.encode(opened)

    cleaned = {"guest": kept, "drinks": {"1": {"name": kept}}, "table": 7}
    assert event == replace(opened, states={"order": cleaned}, metadata={"note": kept})
    change, encoded = redactor.encode(StateChanged(session, "order", states["order"]))
    assert change == StateChanged(session, "order", cleaned)
    assert encoded == encode(change)
    changed, _ = redactor.encode(MetadataChanged(session, {"note": said}))
    assert changed == MetadataChanged(session, {"note": kept})


def test_fields_beside_an_id_are_redacted() -> None:
    event = TaskRequested(
        request(goal="the pin is 1234", label="1234", context="t_1234"),
        Mode.DETACHED,
        Reason.ASKED_TO_WAIT,
    )
    kept, encoded = FactRedactor(Redactor(["1234"])).encode(event)

    cleaned = replace(event.request, goal="the pin is ***", label="***", context="t_***")
    assert kept == replace(event, request=cleaned)
    assert encoded == encode(kept)


def test_a_message_keeps_its_name_when_it_is_cleaned() -> None:
    said = AssistantMessage("password=hunter2X9zQ")
    kept, _ = FactRedactor(Redactor()).encode(ModelAnswered(TaskId("t_1"), said))

    assert kept.message.text == "password=***"
    assert kept.message.id == said.id


@pytest.mark.parametrize("field", ["error", "note", "schema_errors"])
def test_a_repeated_answer_does_not_hide_secrets_beside_it(field: str) -> None:
    facts = FactRedactor(Redactor())
    answer = AssistantMessage("all is well")
    facts.encode(ModelAnswered(TaskId("t_1"), answer))
    secret = "password=hunter2X9zQ"
    besides: Any = {field: (secret,) if field == "schema_errors" else secret}
    plain = TaskSettled(TaskId("t_1"), Outcome(Ending.SUCCEEDED, answer.text))
    more = TaskSettled(TaskId("t_1"), replace(plain.outcome, **besides))

    assert facts.encode(plain) == (plain, encode(plain))
    kept, encoded = facts.encode(more)

    assert "hunter2" not in encoded.body.decode()
    assert kept.outcome.output == answer.text
    assert "password=***" in encoded.body.decode()


def test_a_secret_is_found_in_arguments_of_any_type() -> None:
    """A model that users write is not bound to lists and mappings."""
    said = UserMessage("password=hunter2X9zQ")
    arguments = {
        "deep": [{"said": said}, ("password=hunter3X9zQ", {"password=hunter4X9zQ"})],
        7: "password=hunter5X9zQ",
    }
    call = ToolCall("tell", cast("Any", arguments))
    event = ModelAnswered(TaskId("t_1"), AssistantMessage(calls=(call,)))

    kept, encoded = FactRedactor(Redactor()).encode(event)

    assert b"hunter" not in encoded.body
    assert encoded.body.count(b"password=***") == 4
    assert "hunter" not in repr(kept)
    assert event.message.calls[0].arguments["deep"][0]["said"] is said


def test_a_fact_without_secrets_is_the_very_same() -> None:
    """Most facts are, and they are not copied."""
    event = ModelAnswered(TaskId("t_1"), AssistantMessage("a secret is a secret"))
    kept, _ = FactRedactor(Redactor()).encode(event)

    assert kept is event


@pytest.mark.parametrize("data", [bytes(range(256)), b"\x89PNG\r\n\x1a\npassword=hunter2X9zQ\xff"])
def test_a_binary_file_is_not_redacted(data: bytes) -> None:
    event = MessageReceived(SessionId("r_1"), "look", (Part("image/png", data=data),))
    kept, _ = FactRedactor(Redactor()).encode(event)

    assert kept is event


async def test_a_weak_password_does_not_redact_names_of_agents(field: Field) -> None:
    """An orchestrator whose environment has `PGPASSWORD=postgres` can have such an agent."""
    child = Agent("postgres", model=ScriptedModel(["postgres runs"]))
    call = hand_on("look", agent="postgres")
    boss = Agent("boss", model=ScriptedModel([call, last]), delegates=[child])
    environ = {**field.environ, "PGPASSWORD": "postgres"}

    async with open_orchestrator(":memory:", machine=Machine(environ=environ)) as orchestrator:
        run = await orchestrator.run(boss, "go")

    assert json.loads(run.output)["results"][0]["status"] == "succeeded"
    assert "*** runs" in run.output
    assert "/boss/postgres[1]" in [run.tree[it].path for it in run.tree]
