"""Commands, as an agent uses them: `terminal`, and `process` for those in the background."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import ClosedError, Machine, MemoryJournal, open_orchestrator
from orchestrator.agents import DefinitionError, ToolCall
from orchestrator.agents.tools.terminal.tools import SHOWN, WRITE_SECONDS, terminal
from orchestrator.delegation import Encoded, Ending, Rules, root_of
from orchestrator.delegation.events import (
    Entry,
    ProcessEnded,
    ProcessStarted,
    TaskSettled,
    ToolAnswered,
    TurnEnded,
)
from orchestrator.kernel.execution.workspace.task_workspace import CLOSE_SECONDS
from tests.kit import facts, hand_on
from tests.orchestrator.commands_kit import (
    ManualModel,
    Pipe,
    RefusedError,
    background,
    children,
    command_mail_read,
    has_ended,
    in_a_run,
    in_a_session,
    is_alive,
    let_pass,
    outside,
    pipe,
    running_in,
    shell_user,
    talking,
)

pytestmark = pytest.mark.realtime

KEY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that the test leaves no process and no zombie."""
    had = children()
    yield
    assert children() <= had


@pytest.fixture
def clock() -> trio.testing.MockClock:
    """The real time, and a way to let much of it pass at once."""
    return trio.testing.MockClock(rate=1)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Pipe]:
    """Commands wait for it with `read _ <gate`."""
    with pipe(tmp_path / "gate") as opened:
        yield opened


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Pipe]:
    """Commands speak to the test with `echo ... >said`."""
    with pipe(tmp_path / "said") as opened:
        yield opened


class TestForeground:
    async def test_the_model_reads_the_exit_code_and_the_output(self, tmp_path: Path) -> None:
        async with in_a_run(tmp_path) as manual:
            answer = await manual.run("echo out; echo err >&2; exit 3")

        assert answer.pop("seconds") < 60
        assert answer == {"exit_code": 3, "output": "out\nerr\n"}

    async def test_a_signal_is_a_negative_number(self, tmp_path: Path) -> None:
        async with in_a_run(tmp_path) as manual:
            answer = await manual.run("kill -KILL $$")

        # As a shell says it, where another process than ours waits for the command.
        assert answer["exit_code"] in {-signal.SIGKILL, 128 + signal.SIGKILL}

    async def test_a_command_reads_an_empty_stdin(self, tmp_path: Path) -> None:
        """A command that asks reads the end of its input, and does not wait for ever."""
        async with in_a_run(tmp_path) as manual:
            answer = await manual.run("cat; read answer || echo nobody")

        assert answer["output"] == "nobody\n"

    async def test_a_command_over_its_timeout_is_ended_and_keeps_its_output(
        self, tmp_path: Path, said: Pipe, clock: trio.testing.MockClock
    ) -> None:
        command = "echo early; sleep 1000 & echo $! >said; wait"
        call = ToolCall("terminal", {"command": command, "timeout": 100})
        async with in_a_run(tmp_path) as manual:
            answers: list[Any] = []

            async def answer() -> None:
                answers.extend(await manual.call_all(call))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                grandchild = outside(int(await said.receive()), tmp_path)
                await let_pass(clock, 100)

        assert has_ended(grandchild)
        (ended,) = answers
        assert ended["exit_code"] is None
        assert ended["output"] == "early\n"
        assert ended["seconds"] == pytest.approx(100, abs=60)
        assert "had not ended after 100 seconds" in ended["note"]
        assert "background=true" in ended["note"]

    async def test_processes_left_by_a_command_are_ended_and_reported(self, tmp_path: Path) -> None:
        async with in_a_run(tmp_path) as manual:
            answer = await manual.run("sleep 1000 & echo $!")

        assert answer["exit_code"] == 0
        assert "left something running" in answer["note"]
        assert running_in(tmp_path) == []

    async def test_cancelling_the_run_ends_grandchildren_wherever_they_went(
        self, tmp_path: Path, said: Pipe
    ) -> None:
        manual = ManualModel()
        journal = MemoryJournal()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, shell_user(manual), "go")
                await manual.receive()
                command = (
                    "bash -c 'sleep 1000 & echo $! >said; wait' &"
                    " setsid sh -c 'echo $$ >said; exec sleep 1000' & wait"
                )
                manual.begin_calls(ToolCall("terminal", {"command": command}))
                said_ids = [int(await said.receive()) for _ in range(2)]
                pids = [outside(pid, tmp_path) for pid in said_ids]
                assert all(map(is_alive, pids))
                nursery.cancel_scope.cancel()

            assert all(map(has_ended, pids))
        assert [it.outcome.ending for it in facts(journal.entries, TurnEnded)] == [Ending.CANCELLED]

    async def test_two_of_one_answer_run_at_the_same_time(
        self, tmp_path: Path, gate: Pipe, said: Pipe
    ) -> None:
        async with in_a_run(tmp_path) as manual:
            answers = await manual.call_all(
                ToolCall("terminal", {"command": "echo a >gate; read x <said; echo $x"}),
                ToolCall("terminal", {"command": "read x <gate; echo b >said; echo $x"}),
            )

        assert [it["output"] for it in answers] == ["b\n", "a\n"]

    async def test_long_output_is_cut_in_the_middle_with_a_note(self, tmp_path: Path) -> None:
        async with in_a_run(tmp_path) as manual:
            answer = await manual.run("seq 100000; echo end")

        output = answer["output"]
        assert output.startswith("1\n2\n3\n")
        assert output.endswith("\n100000\nend\n")
        assert len(output) < 2 * SHOWN + 100
        assert "of 588899 characters are left out here]" in output

    async def test_binary_output_is_shown_with_replacement_characters(self, tmp_path: Path) -> None:
        async with in_a_run(tmp_path) as manual:
            answer = await manual.run(r"printf 'a\377\000b\033[31mc\n'")

        assert answer["output"] == "a\ufffd\ufffdbc\n"

    async def test_a_command_starts_in_the_named_folder(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        async with in_a_run(tmp_path) as manual:
            inside = [
                (await manual.run("pwd -P", workdir=str(name)))["output"].strip()
                for name in (".", "a/b", "a/../a", tmp_path / "a")
            ]

        top = inside[0]
        assert top.endswith(tmp_path.name)
        assert inside == [top, f"{top}/a/b", f"{top}/a", f"{top}/a"]

    @pytest.mark.parametrize(
        ("workdir", "why"),
        [
            ("..", "leads out of the workspace"),
            ("/", "leads out of the workspace"),
            ("out", "leads out of the workspace"),
            ("missing", "there is no 'missing'"),
            ("file", "'file' is a file, not a folder"),
        ],
    )
    @pytest.mark.parametrize("in_background", [False, True])
    async def test_a_command_cannot_start_outside_of_the_workspace(
        self, tmp_path: Path, workdir: str, why: str, in_background: bool
    ) -> None:
        journal = MemoryJournal()
        (tmp_path / "out").symlink_to("/tmp")
        (tmp_path / "file").touch()
        async with in_a_run(tmp_path, journal) as manual:
            with pytest.raises(RefusedError) as refused:
                await manual.run(f"touch {tmp_path}/ran", workdir=workdir, background=in_background)

        assert why in str(refused.value)
        assert not (tmp_path / "ran").exists()
        assert not facts(journal.entries, ProcessStarted)

    @pytest.mark.parametrize(
        ("arguments", "why"),
        [
            ({"command": " "}, "say which command"),
            ({"command": "echo", "timeout": 601}, "timeout"),
            ({"command": "echo", "timeout": 0}, "timeout"),
            ({"command": "echo", "notify_on_complete": True}, "for background=true"),
            ({"command": "echo", "watch_patterns": ["a"]}, "for background=true"),
            ({"command": "echo", "shell": "zsh"}, "shell"),
            ({"command": "echo \0"}, "character that is not allowed"),
            ({"command": "echo \0", "background": True}, "that is not allowed"),
            ({"command": "x" * 3_000_000}, "more than the system takes"),
        ],
    )
    async def test_an_impossible_command_is_refused_with_the_reason(
        self, tmp_path: Path, arguments: dict[str, Any], why: str
    ) -> None:
        async with in_a_run(tmp_path) as manual:
            with pytest.raises(RefusedError) as refused:
                await manual.call("terminal", **arguments)

        assert why in str(refused.value)

    async def test_a_command_knows_its_session_and_no_secrets(self, tmp_path: Path) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "OPENAI_API_KEY": "sk-proj-0123456789abcdefghijklmnop",
            "KEPT": "yes",
        }
        async with in_a_run(tmp_path, environ=environ) as manual:
            answer = await manual.run("env")
            started = await manual.start("env")
            later = await manual.look("wait", started)

        for output in (answer["output"], later["output"]):
            variables = dict(line.split("=", 1) for line in output.splitlines())
            assert variables["ORCHESTRATOR_SESSION_ID"].startswith("r_")
            assert variables["ORCHESTRATOR_TASK"] == "/worker"
            assert variables["KEPT"] == "yes"
            assert "OPENAI_API_KEY" not in variables

    async def test_a_command_of_a_child_sees_the_name_of_the_child(self, tmp_path: Path) -> None:
        lead, child = ManualModel(), ManualModel()
        agent = shell_user(lead, "lead", delegates=[shell_user(child, "child")])
        names = "echo $ORCHESTRATOR_TASK"
        async with open_orchestrator(
            ":memory:", machine=Machine(workspace=tmp_path)
        ) as orchestrator:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, agent, "go")
                await lead.receive()
                lead.begin_calls(
                    hand_on("a"), ToolCall("terminal", {"command": f"read _ <gate; {names}"})
                )
                with pipe(tmp_path / "gate") as gate:
                    await child.receive()
                    below = await child.run(names)
                    gate.send()
                    child.end()
                    heard = await lead.receive()
                lead.end()

        assert below["output"] == "/lead/child[1]\n"
        assert '"output":"/lead\\n"' in heard

    async def test_a_command_needs_an_orchestrator(self) -> None:
        with pytest.raises(DefinitionError, match="need a ToolContext"):
            await terminal.run(ToolCall("terminal", {"command": "true"}))


class TestBackground:
    async def test_a_background_command_runs_while_the_model_continues(
        self, tmp_path: Path, gate: Pipe
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("echo one; read _ <gate; echo two; exit 4")
            assert is_alive(started["pid"])
            assert started["notify_on_complete"] is False
            assert "notify_unsupported" not in started
            assert f'id="{started["id"]}"' in started["hint"]

            (listed,) = (await manual.call("process", action="list"))["processes"]
            gate.send()
            ended = await manual.look("wait", started)
            (listed_later,) = (await manual.call("process", action="list"))["processes"]

        assert listed.pop("seconds") < 60
        assert listed == {
            "id": started["id"],
            "command": "echo one; read _ <gate; echo two; exit 4",
            "status": "running",
        }
        assert ended.pop("output") == "one\ntwo\n"
        assert ended == listed_later
        assert ended["status"] == "ended"
        assert (ended["exit_code"], ended["ended"]) == (4, "exit code 4")

    async def test_poll_shows_only_new_output(self, tmp_path: Path, gate: Pipe, said: Pipe) -> None:
        command = "for i in 1 2; do echo $i; echo >said; read _ <gate; done"
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start(command)
            await said.receive()
            first = await manual.look("poll", started)
            again = await manual.look("poll", started)
            gate.send()
            await said.receive()
            second = await manual.look("poll", started)
            gate.send()
            await talk.command.finished.wait()
            third = await manual.look("poll", started)

        polls = [first, again, second, third]
        assert [it["new_output"] for it in polls] == ["1\n", "", "2\n", ""]
        assert [it["status"] for it in polls] == [*["running"] * 3, "ended"]
        assert third["exit_code"] == 0

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("the key sk-ant-api03-A1b2C3d4", "E5f6G7h8I9j0K1l2 is it"),
            ("it is 7h15-15-", "50-53cr37 indeed"),
            ('{"a":1,"b":"7h15-15-', '50-53cr37","c":2}'),
            ("Authorization: Bearer ", "A1b2C3d4E5f6G7h8"),
            (f"-----BEGIN PRIVATE KEY-----\\n{KEY}\\n", f"{KEY}\\n{KEY}\\nand more"),
        ],
        ids=["by its looks", "known", "without a blank", "a header", "many lines"],
    )
    @pytest.mark.parametrize("action", ["poll", "log", "wait"])
    async def test_output_read_in_two_parts_shows_no_secret(
        self, tmp_path: Path, gate: Pipe, said: Pipe, *, action: str, first: str, second: str
    ) -> None:
        """A reader that looks while it is being printed must not see half of it."""
        command = 'printf %b "$(cat 1)"; echo >said; read _ <gate; printf %b "$(cat 2)"'
        (tmp_path / "1").write_text(f"{first}\\c")
        (tmp_path / "2").write_text(second)
        environ = {"PATH": "/bin:/usr/bin", "API_KEY": "7h15-15-50-53cr37"}
        journal = MemoryJournal()
        brief = {"timeout": 0.01} if action == "wait" else {}
        async with in_a_session(tmp_path, journal, environ=environ) as talk:
            manual = await talk.begin()
            started = await manual.start(command)
            await said.receive()
            await manual.look(action, started, **brief)
            gate.send()
            await talk.command.finished.wait()
            await manual.look(action, started)

        answers = [it.message.text for it in facts(journal.entries, ToolAnswered)]
        assert "***" in repr(answers)
        for part in ("A1b2", "E5f6", "7h15", "53cr37", KEY[:9]):
            assert part not in repr(answers)

    async def test_a_question_is_shown_when_it_has_been_looked_at_twice(
        self, tmp_path: Path, gate: Pipe, said: Pipe
    ) -> None:
        """Its last word has no end, and may have been half a secret."""
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("printf 'Go on?'; echo >said; read _ <gate")
            await said.receive()
            first = await manual.look("poll", started)
            second = await manual.look("poll", started)
            third = await manual.look("poll", started)

        assert first["new_output"] == "Go "
        assert "the next poll will show" in first["note"]
        assert (second["new_output"], third["new_output"]) == ("on?", "")
        assert "note" not in second

    async def test_log_shows_lines(self, tmp_path: Path) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("seq 300")
            await manual.look("wait", started)
            last = await manual.look("log", started)
            some = await manual.look("log", started, offset=10, limit=2)
            none = await manual.look("log", started, offset=1000)

        assert last["lines"] == "100 to 300 of 300"
        assert last["output"].split("\n") == [str(it) for it in range(101, 301)]
        assert (some["lines"], some["output"]) == ("10 to 12 of 300", "11\n12")
        assert (none["lines"], none["output"]) == ("300 to 300 of 300", "")

    async def test_a_line_without_end_does_not_fill_the_models_window(self, tmp_path: Path) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start(
                "printf begin; head -c 150000 /dev/zero | tr '\\0' x; printf end"
            )
            await talk.command.finished.wait()
            log = (await manual.look("log", started))["output"]
            poll = (await manual.look("poll", started))["new_output"]
            wait = (await manual.look("wait", started))["output"]

        assert log == poll
        assert log.startswith("beginxxx")
        assert log.endswith("xxxend")
        assert len(log) < 2 * SHOWN + 100
        assert "[120008 of these 150008 characters are left out here]" in log
        assert 1_000 <= len(wait) <= 2_000

    async def test_wait_gives_up_after_its_timeout_with_a_note(
        self, tmp_path: Path, gate: Pipe, clock: trio.testing.MockClock
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate")
            answers: list[Any] = []

            async def answer() -> None:
                answers.append(await manual.look("wait", started, timeout=100))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer)
                await let_pass(clock, 100)

        (waited,) = answers
        assert waited["status"] == "running"
        assert waited["note"] == "It still runs after 100 seconds."

    async def test_a_command_reads_the_written_data_and_then_the_end(
        self, tmp_path: Path, said: Pipe
    ) -> None:
        command = 'while read x; do echo "<$x>" | tee said; done; echo closed; read || exit 5'
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start(command)
            written = await manual.look("write", started, data="o")
            submitted = await manual.look("submit", started, data="né")
            line = await said.receive()
            await manual.look("submit", started)
            empty = await said.receive()
            closed = await manual.look("close", started)
            await manual.look("close", started)
            with pytest.raises(RefusedError, match="closed") as refused:
                await manual.look("write", started, data="more")
            ended = await manual.look("wait", started)

        assert (line, empty) == ("<oné>", "<>")
        assert (written["written"], submitted["written"]) == (1, 3)
        assert closed["note"] == "Its input has ended."
        assert "stdin" in str(refused.value) or "has ended" in str(refused.value)
        assert ended["output"] == "<oné>\n<>\nclosed\n"
        assert ended["exit_code"] == 5

    @pytest.mark.parametrize("action", ["write", "submit", "close"])
    async def test_an_ended_command_refuses_input(self, tmp_path: Path, action: str) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("true")
            await manual.look("wait", started)

            with pytest.raises(RefusedError, match="has ended, and reads nothing"):
                await manual.look(action, started, data="x")

    async def test_a_write_to_a_command_that_does_not_read_times_out(
        self, tmp_path: Path, gate: Pipe, clock: trio.testing.MockClock
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start("read _ <gate")
            refused: list[str] = []

            async def write() -> None:
                try:
                    await manual.look("write", started, data="x" * 1_000_000)
                except RefusedError as exc:
                    refused.append(str(exc))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                await let_pass(clock, WRITE_SECONDS)
            assert (await manual.look("poll", started))["status"] == "running"

        assert "has not read all of it in 10 seconds" in refused[0]

    async def test_kill_ends_all_of_it_after_it_was_asked_to(
        self, tmp_path: Path, said: Pipe
    ) -> None:
        command = "trap 'echo bye; exit 7' TERM; sleep 1000 & echo $! >said; wait"
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start(command)
            grandchild = outside(int(await said.receive()), tmp_path)
            killed = await manual.look("kill", started)
            assert has_ended(started["pid"])
            assert has_ended(grandchild)
            again = await manual.look("kill", started)

        assert killed == again
        assert killed["status"] == "ended"
        assert killed["ended"] == "you have ended it"
        assert killed["output"] == "bye\n"

    @pytest.mark.parametrize(
        ("command", "how"),
        [
            ("kill -SEGV $$", {"killed by SIGSEGV", "exit code 139"}),
            ("kill -35 $$", {"killed by signal 35", "exit code 163"}),
            ("exit 1", {"exit code 1"}),
            ("sleep 1000 &", {"exit code 0; what it had left running was ended with it"}),
        ],
    )
    async def test_the_ending_of_a_command_is_described_in_words(
        self, tmp_path: Path, command: str, how: set[str]
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.start(command)

            assert (await manual.look("wait", started))["ended"] in how

    async def test_a_unique_prefix_of_an_id_is_enough(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = iter(["aaaa01", "aaaa02", "bbbb", "aaaa0"])
        monkeypatch.setattr(
            "orchestrator.kernel.execution.workspace.background_commands.secrets.token_hex",
            lambda _: next(ids),
        )
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            for _ in range(4):
                await manual.start("true")

            async def named(id_: str) -> Any:
                return (await manual.call("process", action="poll", id=id_))["id"]

            assert await named("p_bb") == "p_bbbb"
            assert await named("p_aaaa02") == "p_aaaa02"
            # Whole, though it is how others begin.
            assert await named("p_aaaa0") == "p_aaaa0"
            with pytest.raises(RefusedError, match="p_aaaa01, p_aaaa02, p_aaaa0; say"):
                await named("p_aaaa")
            for unknown in ("p_b", "p_", "p_cccc", "bbbb"):
                with pytest.raises(RefusedError, match="you have no command"):
                    await named(unknown)
            with pytest.raises(RefusedError, match="say which command is meant"):
                await named("")

    async def test_an_unknown_action_is_refused(self, tmp_path: Path) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            with pytest.raises(RefusedError, match="do not fit"):
                await manual.call("process", action="pause", id="p_1234")

    async def test_a_task_cannot_see_the_commands_of_another(
        self, tmp_path: Path, gate: Pipe
    ) -> None:
        child = ManualModel()
        async with open_orchestrator(
            ":memory:", machine=Machine(workspace=tmp_path)
        ) as orchestrator:
            async with (
                talking(orchestrator, delegates=[shell_user(child, "child")]) as talk,
                talking(orchestrator) as other,
            ):
                manual = await talk.begin()
                started = await manual.start("read _ <gate")
                manual.begin_calls(hand_on("a", background=False))
                await child.receive()
                for stranger in (child, await other.begin()):
                    listed = await stranger.call("process", action="list")
                    assert listed == {"processes": []}
                    with pytest.raises(RefusedError, match="you have no command"):
                        await stranger.look("kill", started)
                assert is_alive(started["pid"])

    async def test_the_background_commands_of_a_session_are_limited(
        self, tmp_path: Path, gate: Pipe
    ) -> None:
        """It is the session's limit, whichever of its tasks runs them."""
        child = ManualModel()
        rules = Rules(processes=2)
        async with open_orchestrator(
            ":memory:", rules=rules, machine=Machine(workspace=tmp_path)
        ) as orchestrator:
            async with talking(orchestrator, delegates=[shell_user(child, "child")]) as talk:
                manual = await talk.begin()
                first = await manual.start("read _ <gate")
                manual.begin_calls(hand_on("a", background=False))
                await child.receive()
                two = await child.call_all(*[background("read _ <gate")] * 2)
                child.end()
                await manual.receive()
                # That of the child has ended with it.
                await manual.start("read _ <gate")
                with pytest.raises(RefusedError, match="2 commands run in the back"):
                    await manual.start("true")
                await manual.look("kill", first)
                await manual.start("true")

        (refused,) = [it for it in two if isinstance(it, RefusedError)]
        assert 'process(action="kill")' in str(refused)

    async def test_a_limit_of_zero_processes_refuses_every_command(self, tmp_path: Path) -> None:
        async with in_a_run(tmp_path, rules=Rules(processes=0)) as manual:
            with pytest.raises(RefusedError, match="no command may run in the backgr"):
                await manual.start("true")

    async def test_a_command_that_is_a_whole_file_is_listed_by_its_beginning(
        self, tmp_path: Path
    ) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            await manual.start("cat >file <<END\n" + 1_000 * "many words\n" + "END")
            (listed,) = (await manual.call("process", action="list"))["processes"]

        assert listed["command"].startswith("cat >file <<END\nmany words")
        assert listed["command"].endswith(" ...")
        assert len(listed["command"]) < 250

    async def test_the_last_that_have_ended_are_remembered(self, tmp_path: Path) -> None:
        async with in_a_session(tmp_path) as talk:
            manual = await talk.begin()
            started = await manual.call_all(*[background("true")] * 40)
            for one in started:
                await manual.look("wait", one)
            await manual.start("echo last")
            listed = (await manual.call("process", action="list"))["processes"]

        assert len(listed) == 33
        assert listed[-1]["command"] == "echo last"


class TestItsEndWithOthers:
    @pytest.mark.parametrize("is_cancelled", [True, False])
    async def test_a_background_command_ends_with_its_run(
        self, tmp_path: Path, gate: Pipe, is_cancelled: bool
    ) -> None:
        journal = MemoryJournal()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            manual = ManualModel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, shell_user(manual), "go")
                await manual.receive()
                started = await manual.start("echo on; read _ <gate")
                if is_cancelled:
                    nursery.cancel_scope.cancel()
                manual.end()
            assert has_ended(started["pid"])
            assert orchestrator.sessions.machine.commands._commands == {}

        (ended,) = facts(journal.entries, ProcessEnded)
        assert ended.how == "stopped, because its task has ended"
        assert isinstance(journal.entries[-1].event, TurnEnded)

    @pytest.mark.parametrize("in_background", [True, False])
    async def test_a_background_command_ends_with_its_child_task(
        self, tmp_path: Path, gate: Pipe, in_background: bool
    ) -> None:
        journal = MemoryJournal()
        child = ManualModel()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            async with talking(orchestrator, delegates=[shell_user(child, "child")]) as talk:
                manual = await talk.begin()
                manual.begin_calls(hand_on("a", background=in_background))
                await child.receive()
                started = await child.start("read _ <gate")
                child.end()
                await manual.receive()
                if in_background:
                    manual.end()
                    await manual.receive()
                assert has_ended(started["pid"])

        (ended,) = facts(journal.entries, ProcessEnded)
        (settled,) = facts(journal.entries, TaskSettled)
        assert ended.how == "stopped, because its task has ended"
        kinds = [type(entry.event) for entry in journal.entries]
        assert kinds.index(ProcessEnded) < kinds.index(TaskSettled)
        assert settled.outcome.succeeded

    async def test_a_run_does_not_wait_for_ever_for_one_that_does_not_end(
        self, tmp_path: Path, gate: Pipe, said: Pipe, clock: trio.testing.MockClock
    ) -> None:
        """The run has ended by then, and nothing more can be said of its command."""
        journal = MemoryJournal()
        async with open_orchestrator(journal, machine=Machine(workspace=tmp_path)) as orchestrator:
            manual = ManualModel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(orchestrator.run, shell_user(manual), "go")
                await manual.receive()
                started = await manual.start("trap '' TERM; echo >said; read _ <gate")
                await said.receive()
                manual.end()
                await let_pass(clock, CLOSE_SECONDS)
        assert has_ended(started["pid"])
        (ended,) = facts(journal.entries, TurnEnded)
        assert ended.outcome.succeeded
        assert not facts(journal.entries, ProcessEnded)


class Slow(MemoryJournal):
    """A journal on a disk that takes its time, for as long as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = False
        self.asked = trio.Event()
        self._written = trio.Event()

    def append(
        self, entry: Entry, encoded: Encoded, idle_changes: Any, *, urgent: bool = False
    ) -> None:
        super().append(entry, encoded, idle_changes, urgent=urgent)
        if isinstance(entry.event, ProcessStarted):
            self.is_stuck = True

    async def wait_durable(self, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_stuck:
            self.asked.set()
            await self._written.wait()

    def write(self) -> None:
        self.is_stuck = False
        self._written.set()


class TestDurable:
    async def test_a_command_starts_after_its_fact_is_durable(self, tmp_path: Path) -> None:
        """Otherwise a crash would leave a process that is not recorded and cannot be ended."""
        journal = Slow()
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            manual.begin_calls(background("touch ran"))
            await journal.asked.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert talk.command.pid == 0
            assert facts(journal.entries, ProcessStarted)

            journal.write()
            await manual.receive()
            await talk.command.finished.wait()

        assert (tmp_path / "ran").exists()

    async def test_a_command_cancelled_before_its_start_has_ended(self, tmp_path: Path) -> None:
        """Closing the orchestrator would otherwise wait for its end for ever."""
        journal = Slow()
        async with in_a_session(tmp_path, journal) as talk:
            manual = await talk.begin()
            manual.begin_calls(background("touch ran", notify_on_complete=True))
            await journal.asked.wait()
            root = root_of(talk.session.id)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(talk.orchestrator.sessions.delegator.cancel, [root])
                await trio.testing.wait_all_tasks_blocked()
                journal.write()
            heard = await talk.woken()
            with trio.fail_after(10):
                await talk.orchestrator.cancel(root, tree=True)

        assert "has ended: it was never begun" in heard
        assert not (tmp_path / "ran").exists()
        assert len(command_mail_read(journal.entries)) == 1

    @pytest.mark.parametrize("is_closed", [True, False])
    async def test_a_command_that_starts_during_closing_blocks_no_caller(
        self, tmp_path: Path, is_closed: bool
    ) -> None:
        """It becomes durable after the orchestrator was closed, or in the same moment."""

        async def run() -> None:
            with pytest.raises(ClosedError):
                await orchestrator.run(shell_user(manual), "go")

        for _ in range(10):  # trio shuffles who comes first in that moment
            journal, manual = Slow(), ManualModel()
            async with trio.open_nursery() as nursery:
                async with open_orchestrator(
                    journal, machine=Machine(workspace=tmp_path)
                ) as orchestrator:
                    nursery.start_soon(run)
                    await manual.receive()
                    manual.begin_calls(background("touch ran"))
                    await journal.asked.wait()
                    if not is_closed:
                        journal.write()
                journal.write()
                manual.end()
                nursery.cancel_scope.deadline = trio.current_time() + 10
            assert not nursery.cancel_scope.cancelled_caught
            assert trio.current_time() < nursery.cancel_scope.deadline

        assert not (tmp_path / "ran").exists()
