"""Keys: what each may do, from when to when, and that nothing on the disk is one."""

import json
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall
from orchestrator.agents.approval import allow
from orchestrator.agents.redaction.redactor import redacted
from orchestrator.agents.sandbox.detection import detect
from orchestrator.agents.tools.terminal.process_tags import TAG_VARIABLE
from orchestrator.agents.tools.terminal.tools import terminal
from orchestrator.cli.app import run_command
from orchestrator.kernel.errors import ServerSetupError
from orchestrator.products.server.app import OPERATIONS, application
from orchestrator.products.server.keys.changes import add_key, revoke_key, rotate_key
from orchestrator.products.server.keys.file import FILE, make_keys_file, read_keys
from orchestrator.products.server.keys.key import DEFAULT, ORDINARY, Key, KeyLimits, Scope
from orchestrator.products.server.keys.store import KeyStore
from orchestrator.products.server.openai.responses.response_state import ResponseState
from orchestrator.products.server.server import open_server_state
from orchestrator.products.server.state import ServerState, Settings
from orchestrator.products.server.transport.sse import HEARTBEAT_SECONDS
from tests.kit import worker
from tests.server.keys_kit import serving_with_keys
from tests.server.kit import TOKEN, serving
from tests.server.runs_kit import problem
from tests.server.test_sse import Reader

ALL = frozenset(Scope)


class Clock:
    """A time of day that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.json"


def test_a_key_is_found_by_its_token_only(file: Path) -> None:
    key, token = add_key(file, "ann", now=1, limits=KeyLimits(tokens_per_day=5))
    store = KeyStore(file)
    changed = [f"{token[:-1]}{'1' if token[-1] == '0' else '0'}", token[:-1], token + "0"]

    assert store.find(token) is not None
    assert store.find(token) == (key, token.split("_")[1])
    assert key == Key(name="ann", owner="ann", created=1, limits=KeyLimits(tokens_per_day=5))
    for wrong in (*changed, "", "orc__", token.upper(), f"orc_{'0' * 16}_{'0' * 64}", "ü"):
        assert store.find(wrong) is None, wrong


def test_the_keys_file_is_private_and_holds_no_token(file: Path) -> None:
    tokens = [add_key(file, name, now=1)[1] for name in ("ann", "bob")]
    tokens.append(rotate_key(file, "ann", now=2, grace=60)[1])
    text = file.read_text()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    for token in tokens:
        _, _, secret = token.split("_")
        assert len(secret) == 64
        assert secret not in text
    assert sorted(it.name for it in file.parent.iterdir()) == ["keys.json", "keys.json.lock"]


def test_tokens_are_redacted_in_every_text(file: Path) -> None:
    _, token = add_key(file, "ann", now=1)

    said = redacted(f"the token is {token}, and so on", [])

    assert token not in said
    assert token.split("_")[2] not in said


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_keys_that_others_could_have_changed_are_refused(file: Path, mode: int) -> None:
    _, token = add_key(file, "ann", now=1)
    said: list[str] = []
    store = KeyStore(file, report=said.append)
    file.chmod(mode)

    assert store.find(token) is None
    assert store.find(token) is None
    assert len(said) == 1, "it is said once"
    with pytest.raises(ServerSetupError):
        KeyStore(file)
    file.chmod(0o600)
    assert store.find(token) is not None


@pytest.mark.parametrize("text", ["", "{", '{"version": 2, "keys": []}', "[1]"])
def test_a_damaged_file_has_no_keys(file: Path, text: str) -> None:
    _, token = add_key(file, "ann", now=1)
    store = KeyStore(file, token=TOKEN)
    file.write_text(text)

    assert store.find(token) is None
    assert store.problem
    assert store.find(TOKEN) is not None, "the default key is not in the file"


def test_a_link_in_place_of_the_file_is_refused(file: Path, tmp_path: Path) -> None:
    add_key(file, "ann", now=1)
    link = tmp_path / "keys.json"
    link.symlink_to(file)

    with pytest.raises(ServerSetupError):
        KeyStore(link)


def test_a_change_is_seen_at_the_next_request(file: Path) -> None:
    store = KeyStore(file)
    _, token = add_key(file, "ann", now=1)
    before = store.find(token)
    revoke_key(file, "ann")

    assert before is not None
    assert store.find(token) is None


def test_two_tokens_are_valid_for_the_grace_of_a_rotation(file: Path) -> None:
    clock = Clock()
    key, first = add_key(file, "ann", now=clock())
    store = KeyStore(file, clock=clock)
    _, second = rotate_key(file, "ann", now=clock(), grace=60)
    _, third = rotate_key(file, "ann", now=clock(), grace=60)
    valid = [store.find(token) is not None for token in (first, second, third)]
    clock.now += 60

    assert valid == [False, True, True], "never more than two"
    assert [store.find(it) is not None for it in (second, third)] == [False, True]
    assert read_keys(file)[0].key == key
    _, last = rotate_key(file, "ann", now=clock(), grace=0)
    assert [store.find(it) is not None for it in (third, last)] == [False, True]


def test_a_key_expires(file: Path) -> None:
    clock = Clock()
    _, token = add_key(file, "ann", now=clock(), expires=clock() + 60)
    store = KeyStore(file, clock=clock)

    assert store.find(token) is not None
    clock.now += 60
    assert store.find(token) is None


def test_an_admin_may_do_all_actions_except_approve() -> None:
    admin = Key(name="a", owner="a", scopes=frozenset({Scope.ADMIN}))
    reader = Key(name="r", owner="r", scopes=frozenset({Scope.READ}))

    assert {it for it in Scope if admin.may(it)} == ALL - {Scope.APPROVE}
    assert {it for it in Scope if reader.may(it)} == {Scope.READ}
    assert admin.may_see("anyone")
    assert not reader.may_see("")
    assert Key(name="x", owner=DEFAULT).may_see("")


def test_every_route_needs_one_scope_or_is_known_to_be_public() -> None:
    public = {it.path for it in OPERATIONS if it.scope is None}
    approving = {it.path for it in OPERATIONS if it.scope is Scope.APPROVE}
    changing = [it for it in OPERATIONS if it.method != "GET"]

    assert public == {"/health", "/ready", "/openapi.json"}
    assert approving == {"/v1/approvals/{approval}"}
    assert not [it.path for it in changing if it.scope in {None, Scope.READ}]


@pytest.mark.realtime
async def test_a_route_names_the_missing_scope_of_a_key(tmp_path: Path) -> None:
    wrong: list[Any] = []
    async with serving_with_keys(worker(), folder=tmp_path) as server:
        # An admin has the ordinary scopes, so that it lacks but one.
        tokens = {
            it: server.new_token(
                f"no-{it}", scopes=ALL - {it} - ({Scope.ADMIN} if it in ORDINARY else set())
            )
            for it in Scope
        }
        document = (await server.served.http.get("/openapi.json")).json()
        for operation in OPERATIONS:
            if operation.scope is None:
                continue
            path = operation.path.replace("{", "").replace("}", "")
            answer = await server.ask(tokens[operation.scope], operation.method, path)
            if operation.path.startswith("/v1/messages"):
                # Anthropic's errors have a type and a message only.
                said = {**answer.json()["error"], "code": "missing_scope", "param": operation.scope}
            else:
                said = problem(answer)
            found = (answer.status_code, said["code"], said["param"])
            declared = document["paths"][operation.path][operation.method.lower()]
            if (
                found != (403, "missing_scope", operation.scope)
                or f"the scope '{operation.scope}'" not in said["message"]
                or declared["security"] != [{"token": [operation.scope]}]
                or "403" not in declared["responses"]
            ):
                wrong.append((operation.path, found, declared["security"]))

    assert wrong == []


@pytest.mark.realtime
async def test_the_default_key_approves_only_where_no_command_can_read_it() -> None:
    settings = Settings(token=TOKEN)
    bare = {"ORCHESTRATOR_SANDBOX": "none"}
    async with serving(worker(), settings=settings, environ=bare) as served:
        answer = await served.http.post("/v1/approvals/a_1", json={"answer": "once"})
        read = await served.http.get("/v1/approvals")
    async with serving(worker(), settings=settings) as served:
        walled = await served.http.post("/v1/approvals/a_1", json={"answer": "once"})

    assert answer.status_code == 403
    assert "orchestrator keys add NAME --scope approve" in problem(answer)["message"]
    assert read.status_code == 200
    assert walled.status_code == (404 if detect().backend.is_wall else 403)


@pytest.mark.realtime
async def test_every_wrong_key_is_answered_with_the_same_401(tmp_path: Path) -> None:
    async with serving_with_keys(worker(), folder=tmp_path) as server:
        token = server.new_token("ann")
        expired = server.new_token("old", expires=1.0)
        before = await server.ask(token, "GET", "/v1/models")
        revoke_key(server.file, "ann")
        answers = [
            await server.ask(it, "GET", "/v1/models")
            for it in (token, expired, "orc_nonsense", f"{TOKEN}x")
        ]

    assert before.status_code == 200
    assert {(it.status_code, it.text) for it in answers} == {(401, answers[0].text)}


@pytest.mark.realtime
async def test_unreadable_keys_are_the_server_s_fault_and_not_the_client_s(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_with_keys(worker(), folder=tmp_path) as server:
        token = server.new_token("ann")
        server.file.write_text("{")
        answer = await server.ask(token, "GET", "/v1/models")
        default = await server.ask(TOKEN, "GET", "/v1/models")

    assert (answer.status_code, problem(answer)["code"]) == (503, "keys_unreadable")
    assert str(tmp_path) not in answer.text
    assert default.status_code == 200
    assert str(server.file) in caplog.text


@asynccontextmanager
async def slow_server(file: Path) -> AsyncGenerator[ServerState]:
    """Serve an agent that takes a thousand seconds, without a socket."""
    agent = Agent("worker", model=ScriptedModel.always("done", 1000))
    settings = Settings(token=TOKEN, keys=file)
    async with (
        open_orchestrator(":memory:", machine=Machine(environ={})) as orchestrator,
        open_server_state(orchestrator, {agent.name: agent}, settings) as state,
    ):
        yield state


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "worker", "input": "go", **more}


async def test_a_stream_ends_when_its_key_expires(file: Path) -> None:
    readers = {it: Reader() for it in ("stored", "not stored")}
    async with slow_server(file) as state:
        began, now = trio.current_time(), state.journals.first.orchestrator.now()
        _, token = add_key(file, "ann", now=now, expires=now + 60)
        async with trio.open_nursery() as nursery:
            for name, reader in readers.items():
                reader.token = token
                body = asked(stream=True, store=name == "stored")
                nursery.start_soon(reader.ask, application(state), "/v1/responses", body)
        took = trio.current_time() - began
        under_way = {
            it.state(ResponseState).is_stored: it.root.is_running
            for it in state.journals.first.orchestrator.read.records.sessions.values()
        }

    assert took == pytest.approx(60, abs=1)
    for reader in readers.values():
        assert reader.status == 200
        assert reader.events[-1] == "error"
        last = json.loads(reader.sent.decode().strip().rpartition("data: ")[2])
        assert last["code"] == "invalid_api_key"
        assert reader.is_complete
    assert under_way == {True: True, False: False}, "what is stored belongs to the owner"


@pytest.mark.parametrize(("asks", "within"), [(True, 1), (False, HEARTBEAT_SECONDS + 1)])
async def test_a_stream_ends_when_its_key_is_revoked(
    file: Path, *, asks: bool, within: float
) -> None:
    """At the next request of any client, or else at the next heartbeat."""
    reader, other = Reader(), Reader()
    async with slow_server(file) as state:
        _, reader.token = add_key(file, "ann", now=0)
        app = application(state)
        async with trio.open_nursery() as nursery:
            body = asked(stream=True)
            nursery.start_soon(reader.ask, app, "/v1/responses", body)
            await trio.testing.wait_all_tasks_blocked()
            revoke_key(file, "ann")
            revoked = trio.current_time()
            if asks:
                nursery.start_soon(other.ask, app, "/v1/models")
        took = trio.current_time() - revoked

    assert took <= within
    assert reader.events[-1] == "error"
    assert reader.is_complete


async def test_a_stream_survives_a_rotation_until_its_grace_ends(file: Path) -> None:
    reader = Reader()
    async with slow_server(file) as state:
        _, reader.token = add_key(file, "ann", now=0)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.ask, application(state), "/v1/responses", asked(stream=True))
            await trio.testing.wait_all_tasks_blocked()
            rotate_key(file, "ann", now=state.journals.first.orchestrator.now(), grace=100)
        took = trio.current_time() - began

    assert took == pytest.approx(100, abs=1)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_a_key_that_expires_during_a_request_gets_no_answer(file: Path, path: str) -> None:
    reader = Reader()
    body = asked()
    if "chat" in path:
        body = {"model": "worker", "messages": [{"role": "user", "content": "go"}]}
    async with slow_server(file) as state:
        now = state.journals.first.orchestrator.now()
        _, reader.token = add_key(file, "ann", now=now, expires=now + 60)
        await reader.ask(application(state), path, body)

    assert reader.status == 401


def test_the_command_line_shows_a_token_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = ("--journal", str(tmp_path / "journal.db"))
    file = tmp_path / FILE

    def keys(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["keys", *arguments, *journal])
        return code, *capsys.readouterr()

    code, token, told = keys("add", "ann", "--owner", "team", "--expires", "30d")
    found = KeyStore(file).find(token.strip())
    assert (code, "shown only now" in told) == (0, True)
    assert found is not None
    assert found[0].owner == "team"
    assert found[0].scopes == ORDINARY
    assert found[0].expires == pytest.approx(found[0].created + 30 * 86_400)

    code, shown, _ = keys("add", "ci", "--json", "--scope", "read", "--runs-at-once", "3")
    made = json.loads(shown)
    limits = KeyStore(file).find(made["token"])
    assert limits is not None
    assert limits[0].limits == KeyLimits(runs_at_once=3)
    assert (made["owner"], made["scopes"]) == ("ci", ["read"])

    code, newer, _ = keys("rotate", "ann", "--grace", "30m")
    assert KeyStore(file).find(newer.strip()) is not None
    assert KeyStore(file).find(token.strip()) is not None
    listed = json.loads(keys("list", "--json")[1])
    table = keys("list")[1]
    assert [(it["name"], it["tokens"]) for it in listed] == [("ann", 2), ("ci", 1)]
    assert "3 runs at once" in table
    for it in (token, newer, made["token"]):
        assert it.split("_")[2].strip() not in json.dumps(listed) + table

    assert keys("revoke", "ann")[:2] == (0, "revoked ann\n")
    assert KeyStore(file).find(newer.strip()) is None
    assert json.loads(keys("revoke", "ci", "--json")[1])["name"] == "ci"
    assert "there are no keys" in keys("list")[1]


def test_a_folder_that_others_may_change_has_no_valid_keys(file: Path) -> None:
    """They cannot write a key, but put back a file with one that was revoked."""
    _, token = add_key(file, "ann", now=1)
    store = KeyStore(file)
    assert store.find(token) is not None

    file.parent.chmod(0o777)

    for use in (KeyStore, read_keys, lambda it: add_key(it, "bob", now=1)):
        with pytest.raises(ServerSetupError, match="others can change"):
            use(file)


@pytest.mark.skipif(os.getuid() != 0, reason="makes a link of another user")
def test_a_folder_that_another_user_has_linked_has_no_valid_keys(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    file = tmp_path / FILE
    file.parent.symlink_to(elsewhere)
    add_key(file, "ann", now=1)  # a link of this user is fine

    os.chown(file.parent, 65_534, 65_534, follow_symlinks=False)

    with pytest.raises(ServerSetupError, match="others can change"):
        read_keys(file)


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", DEFAULT),
        ("add", "../x"),
        ("add", "known"),
        ("add", "x", "--owner", "a b"),
        ("add", "x", "--scope", "all"),
        ("add", "x", "--expires", "never"),
        ("add", "x", "--expires", "999999w"),
        ("add", "x", "--tokens-per-day", "0"),
        ("add", "x", "--dollars-per-day", "nan"),
        ("revoke", "unknown"),
        ("revoke", DEFAULT),
        ("rotate", "known", "--grace", "soon"),
    ],
)
def test_a_usage_error_is_reported_and_keeps_the_file(
    tmp_path: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / FILE
    add_key(file, "known", now=1)
    before = file.read_bytes()

    code = run_command(["keys", *arguments, "--journal", str(tmp_path / "journal.db")])

    assert code == 2
    assert capsys.readouterr().err.startswith("orchestrator: ")
    assert file.read_bytes() == before


def test_a_command_of_an_agent_makes_no_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TAG_VARIABLE, "t_1")

    code = run_command(["keys", "add", "x", "--journal", str(tmp_path / "journal.db")])

    assert code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.realtime
async def test_two_processes_can_add_keys_at_once(file: Path) -> None:
    def add(name: str) -> None:
        for number in range(20):
            add_key(file, f"{name}-{number}", now=1)

    async with trio.open_nursery() as nursery:
        for name in ("one", "two"):
            nursery.start_soon(trio.to_thread.run_sync, add, name)

    assert len(read_keys(file)) == 40


@pytest.mark.realtime
async def test_a_command_behind_a_wall_forges_no_key_while_keys_change(tmp_path: Path) -> None:
    """Even where the keys are in its workspace: their folder is hidden, and not one file."""
    if not detect().backend.is_wall:
        pytest.skip("no sandbox of this machine is a wall")
    gate, file = tmp_path / "gate", tmp_path / FILE
    os.mkfifo(gate)
    make_keys_file(file)
    command = f"read line < gate; cat {FILE}; mkdir -p keys; echo forged > {FILE}"
    model = ScriptedModel([ToolCall("terminal", {"command": command}), "done"])
    agent = Agent("main", model=model, tools=[terminal], approve=[allow("*")])

    def change_keys() -> None:
        with gate.open("w") as opened:  # when the command runs
            add_key(file, "ann", now=1)
            opened.write("go\n")

    async with open_orchestrator(
        tmp_path / "journal.db", machine=Machine(workspace=tmp_path, environ=os.environ)
    ) as orchestrator:
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, change_keys)
                run = await orchestrator.run(agent, "go")

    assert run.output == "done"
    assert [it.key.name for it in read_keys(file)] == ["ann"]
