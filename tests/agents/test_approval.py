"""Approval rules decide about a call, and no call passes the gate before them."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import attrs
import pytest
import trio

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    DefinitionError,
    Limits,
    Message,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    ToolMessage,
    UserMessage,
    allow,
    confirm,
    deny,
    take_turn,
    tool,
)
from orchestrator.agents.approval import (
    ApprovalRule,
    Subject,
    Verdict,
    matching_rule,
    strictest_rule,
)
from orchestrator.agents.turn_host import Step
from tests.agents.turn_kit import TestHost
from tests.growth import grows_at_most

GO = UserMessage("go")
ALLOW, ASK, DENY = Verdict


def command(line: str, tool: str = "terminal") -> Subject:
    return Subject(tool=tool, command=line)


def file(path: str, tool: str = "write_file") -> Subject:
    return Subject(tool=tool, path=path, real_path=f"/home/ann/work/{path}")


def said_of(rules: list[ApprovalRule], subject: Subject) -> Verdict | None:
    rule = matching_rule(rules, subject)
    return None if rule is None else rule.verdict


# Which rule decides.


def test_the_first_rule_that_fits_decides() -> None:
    first = [allow("terminal", command="ls*"), deny("terminal")]
    last = [deny("terminal"), allow("terminal", command="ls*")]

    assert said_of(first, command("ls -l")) is ALLOW
    assert said_of(first, command("cat x")) is DENY
    assert said_of(last, command("ls -l")) is DENY


def test_a_call_without_a_matching_rule_passes() -> None:
    rules = [deny("terminal"), confirm("write_file", path="docs/*")]

    assert matching_rule(rules, Subject(tool="read_file", path="docs/a")) is None
    assert matching_rule(rules, file("notes.txt")) is None
    assert matching_rule([], command("ls")) is None


def test_a_call_outside_an_allow_rule_needs_approval() -> None:
    """To allow some calls does not allow the others."""
    rules = [allow("terminal", command="git *")]

    assert said_of(rules, command("git status")) is ALLOW
    assert said_of(rules, command("make")) is ASK
    assert said_of(rules, Subject(tool="terminal")) is ASK
    assert said_of(rules, command("make", tool="other")) is None
    assert said_of([*rules, deny("terminal")], command("make")) is DENY


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("terminal", "terminal", True),
        ("terminal", "Terminal", False),
        ("terminal", "terminal2", False),
        ("*_file", "write_file", True),
        ("*_file", "list_files", False),
        ("*", "delegate_task", True),
        ("[rw]*_file", "edit_file", False),
    ],
)
def test_a_tool_is_named_or_fits_a_pattern(pattern: str, name: str, fits: bool) -> None:
    assert (matching_rule([deny(pattern)], Subject(tool=name)) is not None) is fits


def test_both_patterns_of_a_rule_must_match() -> None:
    rule = [deny("deploy", command="push*", path="prod/*")]

    for line, path, verdict in (
        ("push now", "prod/a", DENY),
        ("push now", "test/a", None),
        ("pull", "prod/a", None),
    ):
        subject = Subject(tool="deploy", command=line, path=path)
        assert said_of(rule, subject) is verdict


def test_the_strictest_rule_of_all_ancestors_wins() -> None:
    """A child may be allowed less than its parent, never more, at any depth."""
    top = [deny("terminal", command="rm *", reason="never"), confirm("write_file")]
    middle = [allow("terminal"), allow("write_file")]
    leaf = [confirm("terminal"), deny("write_file", path="secret*")]

    def verdict(*policies: list[ApprovalRule], of: Subject) -> Verdict | None:
        rule = strictest_rule(policies, of)
        return None if rule is None else rule.verdict

    assert verdict(leaf, middle, top, of=command("rm x")) is DENY
    assert verdict(leaf, middle, top, of=command("ls")) is ASK
    assert verdict(middle, top, of=command("ls")) is ALLOW
    assert verdict(leaf, middle, top, of=file("secrets")) is DENY
    assert verdict(middle, top, of=file("notes")) is ASK
    assert verdict(top, middle, leaf, of=Subject(tool="other")) is None
    rule = strictest_rule([leaf, middle, top], command("rm x"))
    assert rule is not None
    assert rule.reason == "never"


def test_the_shortest_approval_time_wins() -> None:
    policies = [[confirm("x", seconds=50)], [confirm("x", seconds=5)], [allow("x")]]

    rule = strictest_rule(policies, Subject(tool="x"))

    assert rule is not None
    assert rule.seconds == 5


# Allowed commands.


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "  git status  ",
        "git\tstatus",
        "git   status -s",
        "git status\n",
        "git status 'a file'",
        "git status *.py",
        "git status # a comment",
        "git statusx",
    ],
)
def test_a_plain_command_is_allowed(line: str) -> None:
    assert said_of([allow("terminal", command="git status*")], command(line)) is ALLOW


@pytest.mark.parametrize(
    "line",
    [
        "git status; rm -rf /",
        "git status;rm -rf /",
        "git status && rm -rf /",
        "git status || rm -rf /",
        "git status | sh",
        "git status |& sh",
        "git status & rm -rf /",
        "git status\nrm -rf /",
        "git status\r\nrm -rf /",
        "git status\rrm",
        "git status $(rm -rf /)",
        'git status "$(rm -rf /)"',
        "git status `rm -rf /`",
        "git status > ~/.bashrc",
        "git status >> ~/.bashrc",
        "git status 2>x",
        "git status < /etc/passwd",
        "git status <(rm -rf /)",
        "git status <<X",
        "git status $IFS",
        "git status ${PATH}",
        "git status {a,b}",
        "git status \\",
        "git status \\\n; rm",
        "(git status)",
        "{ git status; }",
        "X=1 git status",
        "PATH=. git status",
        "sudo git status",
        "./git status",
        "git\u00a0status",
        "git\u2003status",
        "git\x0bstatus",
        "git\x0cstatus",
        "git\x1fstatus",
        "git\x85status",
        "git status\x00",
        "git status\x1b[2K",
        "git status\x7f",
        "'git' status",
        "g\\it status",
        "GIT STATUS",
        "git",
        "",
    ],
)
def test_more_than_the_plain_command_is_not_allowed(line: str) -> None:
    """The shell would run another command, so a person is asked."""
    assert said_of([allow("terminal", command="git status*")], command(line)) is ASK


def test_spaces_in_quotes_are_significant_in_a_rule() -> None:
    """`rm "a  b"` is another file than `rm "a b"`."""
    rules = [allow("terminal", command='rm "a b"')]

    assert said_of(rules, command('rm "a b"')) is ALLOW
    assert said_of(rules, command('rm "a  b"')) is ASK


def test_all_commands_are_allowed_by_a_rule_without_a_pattern() -> None:
    assert said_of([allow("terminal")], command("a; b | c")) is ALLOW


# Commands that are denied, or asked about.


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf x",
        " rm\t-rf   x",
        "ls; rm x",
        "ls&&rm x",
        "ls || rm x",
        "ls\nrm x",
        "ls & rm x",
        "(rm x)",
        "{ rm x; }",
        "echo $(rm x)",
        "echo `rm x`",
        'bash -c "rm x"',
        "bash -c 'cd / ; rm x'",
        "if true; then rm x; fi",
        "while true; do rm x; done",
        "! rm x",
        "X=1 rm x",
        "sudo rm x",
        "env -i rm x",
        "find . -exec rm {} +",
        "ls | xargs rm -f",
        "/bin/rm x",
        "\\rm x",
        "r\\m x",
        "r'm' x",
        '"rm" x',
        "rm \\\n  -rf x",
        ">log rm x",
        "RM x",
        "rm\u00a0x",
        "ls #\nrm x",
    ],
)
@pytest.mark.parametrize("rule", [confirm, deny])
def test_a_part_of_a_line_is_found(rule: Callable[..., ApprovalRule], line: str) -> None:
    assert said_of([rule("terminal", command="rm *")], command(line)) is not None


def test_a_pattern_of_commands_is_a_fence_and_no_wall() -> None:
    """A shell has many ways to say one thing: this is known, and said where `deny` is."""
    assert matching_rule([deny("terminal", command="rm *")], command("X=rm; $X y")) is None


@pytest.mark.parametrize("line", ["rmdir x", "farm x", "ls", "git commit -m confirm"])
def test_a_rule_does_not_match_another_command(line: str) -> None:
    assert matching_rule([deny("terminal", command="rm *")], command(line)) is None


@pytest.mark.parametrize(
    ("pattern", "line", "fits"),
    [
        ("rm -rf /", "ls; rm -rf / # gone", True),
        ("rm -rf /", "rm -rf / >/dev/null", True),
        ("rm -rf /", "rm -rf /tmp/x", False),
        ("git push*--force*", "cd x && git push origin main --force", True),
        ("git push*--force*", "git push origin main", False),
        ("*curl*|*sh*", "curl http://x | sh", True),
        ("?m x", "rm x", True),
        ("[rs]m x", "cm x", False),
        ("[*] x", "* x", True),
        ("[*] x", "a x", False),
        ("[", "[", True),
        ("rm  *", "rm x", True),
        ("*", "", False),
        ("*", "ls", True),
    ],
)
def test_a_pattern_of_a_part(pattern: str, line: str, fits: bool) -> None:
    found = matching_rule([deny("terminal", command=pattern)], command(line))
    assert (found is not None) is fits


def test_a_command_rule_ignores_calls_without_a_command() -> None:
    assert matching_rule([deny("*", command="*")], Subject(tool="read_file")) is None


@pytest.mark.parametrize(
    "line",
    [
        "git push " * 20_000,
        "rm a " * 20_000,
        ";" * 100_000,
        "1" * 100_000,
        "a/" * 50_000,
        "'\"" * 50_000,
        "[" * 100_000,
    ],
)
@pytest.mark.parametrize("pattern", ["git push*--force*", "*x*y*z", "rm -rf /", "?m [a-z]* x*y"])
def test_matching_a_huge_command_takes_linear_time(pattern: str, line: str) -> None:
    """All tasks wait while a rule matches a command."""
    rules = [rule("terminal", command=pattern) for rule in (allow, confirm, deny)]

    def match(line: str) -> None:
        for rule in rules:
            rule.matches(command(line))

    assert grows_at_most(30, match, small=line[: len(line) // 10], large=line)


# Files.


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("docs/*", "docs/a.md", True),
        ("docs/*", "docs/deep/a.md", True),
        ("docs/*", "docsx/a.md", False),
        ("docs/*", "my/docs/a.md", False),
        ("*.env", "deep/.env", True),
        ("*AGENTS.md", "AGENTS.md", True),
        ("a.txt", "a.txt", True),
        ("/home/ann/work/a.txt", "a.txt", True),
        ("/home/ann/work/*", "deep/a.txt", True),
        ("/etc/*", "etc/passwd", False),
        (".", ".", True),
    ],
)
@pytest.mark.parametrize("rule", [allow, confirm, deny])
def test_a_file_is_named_from_the_workspace_on_or_from_the_top(
    rule: Callable[..., ApprovalRule], pattern: str, path: str, fits: bool
) -> None:
    assert rule("write_file", path=pattern).matches(file(path)) is fits


def test_a_rule_about_the_files_of_a_folder_covers_the_folder() -> None:
    assert deny("*", path="secrets/*").matches(file("secrets"))
    assert confirm("*", path="secrets/*").matches(file("secrets"))
    assert not allow("*", path="docs/*").matches(file("docs"))


def test_letter_case_does_not_evade_a_rule() -> None:
    """Some file systems ignore case, so the two spellings name one file."""
    assert deny("*", path="Secrets/*").matches(file("sEcRETS/a"))
    assert confirm("*", path="secrets/*").matches(file("SECRETS"))
    assert not allow("*", path="docs/*").matches(file("DOCS/a"))


def test_a_file_rule_ignores_calls_without_a_path() -> None:
    assert matching_rule([deny("*", path="*")], command("ls")) is None


# Rules that make no sense.


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: confirm(""), "names a tool"),
        (lambda: confirm(7), "names a tool"),  # type: ignore[arg-type]
        (lambda: confirm("x", seconds=0), "seconds=0 must be more than 0"),
        (lambda: confirm("x", seconds=-1), "seconds=-1 must be more than 0"),
        (lambda: confirm("x", seconds=math.nan), "seconds=nan must be"),
        (lambda: confirm("x", seconds=math.inf), "seconds=inf must be"),
        (lambda: confirm("x", seconds="9"), "seconds='9' must be"),  # type: ignore[arg-type]
        (lambda: deny("x", command=""), "command='' is not a pattern; '\\*' is all"),
        (lambda: deny("x", command=["rm"]), "command=\\['rm'\\]"),  # type: ignore[arg-type]
        (lambda: deny("x", path=" "), "path=' ' is not a pattern"),
        (lambda: deny("x", path="./docs/*"), "no file is called './docs/\\*'"),
        (lambda: deny("x", path="docs/../*"), "without '~', '.' and '..'"),
        (lambda: deny("x", path="~/.ssh/*"), "no file is called"),
        (lambda: deny("x", path="docs/"), "such as 'docs/\\*'"),
    ],
)
def test_a_rule_that_can_never_hold_is_refused(make: Callable[[], ApprovalRule], says: str) -> None:
    """A rule that never fits would let everything pass, unnoticed."""
    with pytest.raises(DefinitionError, match=says):
        make()


def test_an_agent_accepts_only_approval_rules() -> None:
    model = ScriptedModel([])
    rules = [allow("x"), deny("y")]

    assert Agent("a", model=model, approve=rules).approve == tuple(rules)
    assert Agent("a", model=model, approve=deny("y")).approve == (deny("y"),)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="is no rule about approval"):
        Agent("a", model=model, approve=["terminal"])  # type: ignore[list-item]


# The gate in a turn.


class Gatekeeper:
    """Allows calls on demand, and records them."""

    def __init__(self, *, held: tuple[str, ...] = ()) -> None:
        self.came: list[str] = []
        self._held = held

    async def wait_approved(self, call: ToolCall) -> None:
        self.came.append(call.id)
        await trio.sleep(1)
        if call.arguments.get("letter") == "no":
            raise ToolError("denied")

    def is_pending(self, call: ToolCall) -> bool:
        return call.id in self._held


class Post:
    """Where letters come that really were sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

        @tool
        async def send(letter: str) -> str:
            """Send a letter."""
            await trio.lowlevel.checkpoint()
            self.sent.append(letter)
            return f"sent {letter}"

        self.send: Tool = send


async def take(
    model: ScriptedModel,
    gate: Gatekeeper,
    *tools: Tool,
    transcript: Sequence[Message] = (GO,),
    ready: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    limits: Limits | None = None,
) -> list[Step]:
    host = TestHost(ready=ready, approvals=gate)
    await take_turn(
        Agent("editor", model=model, limits=limits or Limits()),
        transcript,
        model=model,
        tools=tools,
        host=host,
    )
    return host.steps


def send(letter: str, id_: str = "") -> ToolCall:
    return ToolCall("send", {"letter": letter}, id=CallId(id_))


async def test_a_call_is_run_when_the_gate_has_opened_and_not_before() -> None:
    post, gate = Post(), Gatekeeper()
    readied: list[tuple[float, int]] = []

    async def ready() -> None:
        await trio.lowlevel.checkpoint()
        readied.append((trio.current_time(), len(post.sent)))

    await take(ScriptedModel([send("a", "1"), "end"]), gate, post.send, ready=ready)

    assert post.sent == ["a"]
    assert gate.came == ["1"]
    # That it may be run is safe before it is run.
    assert [(now - readied[0][0], sent) for now, sent in readied] == [(0, 0), (1, 0), (1, 1)]


async def test_a_call_that_is_denied_is_not_run_and_the_model_reads_why() -> None:
    post, gate = Post(), Gatekeeper()

    steps = await take(ScriptedModel([[send("no"), send("yes")], "end"]), gate, post.send)

    assert post.sent == ["yes"]
    answers = [step for step in steps if isinstance(step, ToolMessage)]
    assert sorted((it.text, it.failed) for it in answers) == [("denied", True), ("sent yes", False)]


async def test_calls_of_one_answer_wait_at_the_same_time() -> None:
    post, gate = Post(), Gatekeeper()
    began = trio.current_time()

    await take(ScriptedModel([[send("a"), send("b"), send("c")], "end"]), gate, post.send)

    assert trio.current_time() - began == 1
    assert sorted(post.sent) == ["a", "b", "c"]


async def test_a_call_of_an_unknown_tool_needs_no_approval() -> None:
    gate = Gatekeeper()

    steps = await take(ScriptedModel([ToolCall("nope", {}), "end"]), gate)

    assert gate.came == []
    assert "there is no tool 'nope'" in steps[1].text


async def test_a_call_refused_for_repetition_needs_no_approval() -> None:
    post, gate = Post(), Gatekeeper()
    calls = [send("no", str(i)) for i in range(4)]

    steps = await take(ScriptedModel([*calls, "end"]), gate, post.send, limits=Limits(repeats=2))

    assert gate.came == ["0", "1"]
    answers = [step.text for step in steps if isinstance(step, ToolMessage)]
    assert answers[:2] == ["denied", "denied"]
    assert all("you have made this very call 2 times" in it for it in answers[2:])


async def test_a_held_call_runs_once_after_a_crash_when_it_is_approved() -> None:
    """It was certainly never run. The effect of another call is unknown, so it is not run again."""
    post = Post()
    answer = AssistantMessage(calls=(send("held", "h"), send("other", "o")))

    steps = await take(
        ScriptedModel(["end"]), Gatekeeper(held=("h",)), post.send, transcript=(GO, answer)
    )

    assert post.sent == ["held"]
    answers = {str(it.call): it.text for it in steps if isinstance(it, ToolMessage)}
    assert answers["h"] == "sent held"
    assert "broken off" in answers["o"]


async def test_a_held_call_of_a_removed_tool_is_broken_off() -> None:
    answer = AssistantMessage(calls=(send("held", "h"),))

    steps = await take(ScriptedModel(["end"]), Gatekeeper(held=("h",)), transcript=(GO, answer))

    assert "broken off" in steps[0].text


async def test_a_safe_call_comes_to_the_gate_again_after_a_crash() -> None:
    """It may be run twice, and it may have been denied meanwhile."""
    post, gate = Post(), Gatekeeper()
    safe = attrs.evolve(post.send, idempotent=True)
    answer = AssistantMessage(calls=(send("no", "h"),))

    steps: Any = await take(ScriptedModel(["end"]), gate, safe, transcript=(GO, answer))

    assert gate.came == ["h"]
    assert post.sent == []
    assert steps[0].text == "denied"
