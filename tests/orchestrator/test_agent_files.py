"""Agents from files: what Claude Code's users have is read, and what is wrong is said by line."""

import re
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import (
    Agent,
    AssistantMessage,
    Budget,
    DefinitionError,
    Limits,
    Machine,
    ModelSettings,
    ScriptedModel,
    ToolCall,
    allow,
    confirm,
    deny,
    load_agents,
    open_orchestrator,
    tool,
)
from orchestrator.agents.tools.files import own_code
from orchestrator.cli.agent_file import load_team
from orchestrator.cli.app import run_command
from orchestrator.models import ModelRequest

BARE = """
import asyncio
import threading

import trio

import orchestrator.asyncio
from orchestrator import Agent, ScriptedModel, open_orchestrator, run_sync

one = Agent("one", model=ScriptedModel(["done"]))

async def main():
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(one, "go")

async def from_asyncio():
    async with orchestrator.products.asyncio.open_orchestrator(":memory:") as opened:
        await opened.run(one, "go")

def in_thread():
    errors = []

    def run():
        try:
            run_sync(one, "go", journal=":memory:")
        except Exception as exc:
            errors.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise errors[0]
"""
BARE_ENDINGS = [
    "trio.run(main)",
    'run_sync(one, "go", journal=":memory:")',
    "asyncio.run(from_asyncio())",
    "in_thread()",
]
ROOT = Path(__file__).parent.parent.parent
EDITOR = """---
name: editor
description: Use this agent when: a text is wanted. Example: user: "Write it" # at once
model: sonnet
tools: Read, Grep, Agent(researcher)
---

You edit.

---
Still the instructions.
"""
RESEARCHER = """---
description: Looks things up.
tools: [Read, Glob, Bash]
model: inherit
---
You research.
"""
TEAM = """
model: openai:gpt-5-mini
lead: editor
agents:
  editor:
    description: Writes.
    instructions: |
      You edit.
      You are brief.
    delegates: [researcher, checker]
    budget: {usd: 0.5, tasks: 10}
    limits: {calls: 7}
    copies: true
    handoff: true
    language: German
    settings: {temperature: 0.5, stop: [END]}
  researcher: agents/researcher.md
  checker:
    instructions: Check it.
    model: anthropic:claude-haiku-4-5
    tools: [read_file, terminal]
    workspace: worktree
    approve:
      - {allow: Read}
      - {confirm: Bash, command: git push*, seconds: 60}
      - deny: "*"
        reason: not yours
        for_children: false
"""


@pytest.fixture(autouse=True)
def unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget loaded modules, because the next test may write the same file."""
    monkeypatch.setattr(own_code, "_DEFINITIONS", set())


@tool
def lookup(word: str) -> str:
    """Look a word up."""
    return word


class Recorder:
    """A model that keeps what it was asked."""

    name = "recorder"
    request: ModelRequest | None = None

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        self.request = request
        return AssistantMessage("done")


def folder_of(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "agents"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def names(agent: Agent[str]) -> list[str]:
    return [tool.name for tool in agent.tools]


def test_a_folder_of_claude_code_is_loaded(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, editor=EDITOR, researcher=RESEARCHER, README="# Us")

    agents = load_agents(folder)
    editor, researcher = agents["editor"], agents["researcher"]

    assert list(agents) == ["editor", "researcher"]
    assert editor.instructions == "You edit.\n\n---\nStill the instructions."
    assert editor.description == (
        'Use this agent when: a text is wanted. Example: user: "Write it" # at once'
    )
    assert names(editor) == ["read_file", "search_files"]
    assert editor.delegates == (researcher,)
    assert names(researcher) == ["read_file", "list_files", "terminal", "process"]
    assert str(editor.model).startswith("anthropic:claude-sonnet-")
    assert researcher.model == editor.model


def test_a_team_in_one_file(tmp_path: Path) -> None:
    folder_of(tmp_path, researcher=RESEARCHER)
    (tmp_path / "team.yaml").write_text(TEAM)

    agents = load_agents(tmp_path / "team.yaml")
    editor, checker = agents["editor"], agents["checker"]

    assert editor.instructions == "You edit.\nYou are brief.\n"
    assert [it.name for it in editor.delegates] == ["researcher", "checker"]
    assert editor.budget == Budget(usd=0.5, tasks=10)
    assert editor.limits == Limits(calls=7)
    assert (editor.copies, editor.handoff) == (True, True)
    assert editor.language == "German"
    assert editor.settings == ModelSettings(temperature=0.5, stop=["END"])
    assert {str(agents[it].model) for it in ("editor", "researcher")} == {"openai:gpt-5-mini"}
    assert checker.model == "anthropic:claude-haiku-4-5"
    assert checker.workspace == "worktree"
    assert checker.approve == (
        allow("read_file"),
        confirm("terminal", command="git push*", seconds=60),
        confirm("process", command="git push*", seconds=60),
        deny("*", reason="not yours", for_children=False),
    )


def test_a_team_file_sets_defaults_for_its_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, one=RESEARCHER, two=RESEARCHER)
    (tmp_path / "team.yaml").write_text("model: openai:gpt-5\nagents: agents/\n")

    agents = load_agents(tmp_path / "team.yaml")

    assert {str(it.model) for it in agents.values()} == {"openai:gpt-5"}


def test_loading_one_file_loads_the_delegates_beside_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, editor=EDITOR, researcher=RESEARCHER, other=RESEARCHER)

    assert set(load_agents(folder / "editor.md")) == {"editor", "researcher"}
    assert set(load_agents(folder / "other.md", model="openai:gpt-5")) == {"other"}


def test_the_program_gives_tools_and_a_model(tmp_path: Path) -> None:
    model = ScriptedModel(["done"])
    folder = folder_of(tmp_path, a="---\ntools: [lookup, Read]\n---\nLook.")

    agent = load_agents(folder, tools=[lookup], model=model)["a"]

    assert names(agent) == ["lookup", "read_file"]
    assert agent.model is model


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("tools: []", []),
        ("tools:", []),
        ("tools: MultiEdit, Edit", ["edit_file"]),
        ("tools: [LS, Glob]", ["list_files"]),
        (
            'tools: "*"\ndisallowedTools: Bash, Write',
            ["read_file", "edit_file", "list_files", "search_files"],
        ),
    ],
)
def test_the_tools_key_of_an_agent_file_selects_tools(
    tmp_path: Path, tools: str, expected: list[str]
) -> None:
    folder = folder_of(tmp_path, a=f"---\n{tools}\n---\nLook.")

    agent = load_agents(folder, model="openai:gpt-5")["a"]

    assert sorted(names(agent)) == sorted(expected)


def test_words_that_yaml_has_another_meaning_for_are_texts(tmp_path: Path) -> None:
    """In YAML 1.1 these are booleans, a date and a number with a base of sixty."""
    for word in ("no", "on", "2026-01-01", "12:30"):
        folder = folder_of(tmp_path, a=f"---\ndescription: {word}\ntools: []\n---\nx")
        agents = load_agents(folder, model="openai:gpt-5")
        assert agents["a"].description == word


def test_an_unknown_key_is_reported_once_for_all_files(tmp_path: Path) -> None:
    text = "---\ncolor: red\ntools: []\n---\nx"
    folder = folder_of(tmp_path, **dict.fromkeys("abcde", text))

    with pytest.warns(UserWarning, match="color") as told:
        load_agents(folder, model="openai:gpt-5")

    (one,) = told
    assert str(one.message) == (
        f"the key 'color' has no meaning here, and is left out: {folder}/a.md:2,"
        f" {folder}/b.md:2, {folder}/c.md:2 and 2 more"
    )
    assert one.filename == __file__


@pytest.mark.parametrize("key", ["skills", "hooks", "permissionMode", "date", "scope"])
def test_a_key_of_another_tool_is_not_reported_as_mistyped(tmp_path: Path, key: str) -> None:
    folder = folder_of(tmp_path, a=f"---\n{key}: x\ntools: []\n---\nx")

    with pytest.warns(UserWarning, match=f"the key '{key}' has no meaning here"):
        assert load_agents(folder, model="openai:gpt-5")


def test_a_rule_may_name_the_tools_of_others_and_of_the_program(tmp_path: Path) -> None:
    rules = "[{confirm: Bash}, {deny: Write}, {deny: Task}, {allow: ask_parent}, {confirm: 'l*'}]"
    folder = folder_of(
        tmp_path,
        a=f"---\ntools: Agent(b)\napprove: {rules}\n---\nx",
        b="---\ntools: [Bash, lookup]\n---\nx",
    )

    agents = load_agents(folder, tools=[lookup], model="openai:gpt-5")

    assert agents["a"].approve == (
        confirm("terminal"),
        confirm("process"),
        deny("write_file"),
        deny("delegate_task"),
        allow("ask_parent"),
        confirm("l*"),
    )


def test_a_rule_means_the_same_tool_as_the_list_of_tools(tmp_path: Path) -> None:
    """A tool of the program goes before one of Claude Code's of the same name."""
    own = attrs.evolve(lookup, name="Bash")
    folder = folder_of(tmp_path, a="---\ntools: Bash\napprove: [{confirm: Bash}]\n---\nx")

    agent = load_agents(folder, tools=[own], model="openai:gpt-5")["a"]

    assert names(agent) == ["Bash"]
    assert agent.approve == (confirm("Bash"),)


def test_a_file_without_tools_gets_a_warning(tmp_path: Path) -> None:
    """In Claude Code it has all of them."""
    folder = folder_of(tmp_path, a="---\nname: a\n---\nx")

    with pytest.warns(UserWarning, match=r"without the key 'tools' an agent has none"):
        agents = load_agents(folder, model="openai:gpt-5")

    assert agents["a"].tools == ()


MISTAKES = [
    ("Only prose.", 1, "it has no front matter: begin with '---'"),
    ("---\nname: a\n", 1, "its front matter is not closed"),
    ("---\n- a\n---\n", 2, "front matter has keys, and this is a list"),
    ("---\ntools: [Read\n---\n", 2, "'[' is opened here, and not closed"),
    ("---\n\tname: a\n---\n", 2, "indented with spaces, not with tabs"),
    ("---\nname: 'a\n---\n", 2, "a quote is opened here, and not"),
    ("---\nname: a\nname: b\n---\n", 3, "the key 'name' is there twice: see line 2"),
    ("---\nname: !!python/object/apply:os.getcwd []\n---\n", 2, "'!' means a tag"),
    ("---\nname: &a b\nmodel: *a\n---\n", 2, "'&' and '*' mean anchors in YAML"),
    ("---\n1: a\n---\n", 2, "a key is a word"),
    ("---\nname: 12\n---\n", 2, "a name is a text, and this is the number 12: write"),
    ("---\nname: two words\n---\n", 2, "'two words' cannot be the name of an agent"),
    ("---\nmodel: gpt-5\n---\n", 2, "there is no model 'gpt-5': a name has its provider"),
    ("---\nmodel: inherit\n---\n", 2, "agent 'a' names no model"),
    ("---\ntools: [Raed]\n---\n", 2, "there is no tool 'Raed'; did you mean 'Read'?"),
    ("---\ntools:\n  - Read\n  - Bsh\n---\n", 4, "did you mean 'Bash'?"),
    ("---\ntools: WebFetch\n---\n", 2, "no tool like Claude Code's 'WebFetch' here"),
    ("---\ntools: mcp__github__search\n---\n", 2, "is a tool of an MCP server"),
    ("---\ntools: Bash(git *)\n---\n", 2, "is a tool and a rule: write 'Bash'"),
    ("---\ntools: {Read: yes}\n---\n", 2, "tools are names, and this is a mapping"),
    ("---\ndelegates: [b]\n---\n", 2, "there is no agent 'b' to delegate to; there"),
    ("---\ndelegates: [a]\n---\n", 2, "delegates to copies of itself by 'copies: true'"),
    ("---\nbudget: 5\n---\n", 2, "budget has keys, and this is the number 5: write"),
    ("---\nbudget:\n  dollars: 5\n---\n", 3, "budget has no 'dollars'; there are"),
    ("---\nbudget: {usd: much}\n---\n", 2, "usd is a number, and this is the text"),
    ("---\nbudget: {usd: -1}\n---\n", 2, "Budget(usd=-1) makes no sense"),
    ("---\nsettings: {warmth: 1}\n---\n", 2, "settings have no 'warmth'; there are"),
    ("---\nsettings: {temperature: 9}\n---\n", 2, "temperature"),
    ("---\napprove: [terminal]\n---\n", 2, "a rule has keys, and this is the text"),
    ("---\napprove:\n- {path: x}\n---\n", 3, "confirm and deny: write '{confirm: "),
    ("---\napprove:\n- {deny: Bash, why: y}\n---\n", 3, "has no 'why'; there are: "),
    ("---\napprove:\n- {deny: Bash, path: ~/x}\n---\n", 3, "this is no rule: "),
    ("---\napprove: [{deny: Bsh}]\n---\n", 2, "no tool 'Bsh'; did you mean 'Bash'?"),
    ("---\napprove:\n- deny: Bash(rm *)\n---\n", 3, "is a tool and a rule"),
    ("---\napprove:\n- deny: Bash*\n---\n", 3, "no tool is called like 'Bash*'; a"),
    (
        "---\ntools: Write\napprove: [{confirm: Edit}]\n---\n",
        3,
        "no agent here has the tool 'Edit', so the rule decides nothing",
    ),
    ("---\naprove: [{deny: Bash}]\n---\n", 2, "'aprove'; did you mean 'approve'?"),
    ("---\nbudgets: {usd: 1}\n---\n", 2, "'budgets'; did you mean 'budget'?"),
    ("---\ndisalowedTools: Bash\n---\n", 2, "did you mean 'disallowedTools'?"),
    ("---\nallowedTools: Bash\n---\n", 2, "did you mean 'tools'?"),
    ("---\nTools: Bash\n---\n", 2, "did you mean 'tools'?"),
    ("---\npermissions: {}\n---\n", 2, "did you mean 'approve'?"),
    ("---\nnmae: b\n---\n", 2, "did you mean 'name'?"),
    ("---\ninstructions: Be.\n---\n", 2, "the text below the front matter"),
    ("---\ndeny: Bash\n---\n", 2, "'deny': write 'approve: [{deny: ...}]'"),
    ("---\nbudget:\nusd: 1\n---\n", 3, "'usd': write 'budget: {usd: ...}'"),
    ("---\nbudget:\n---\n", 2, "budget has keys, and this is empty"),
    ("---\nsandbox: {}\n---\n", 2, "a file cannot give 'sandbox'"),
    ("---\ncopies: yes\n---\n", 2, "copies is true or false, and this is the text"),
    ("---\non_restart: never\n---\n", 2, "on_restart is 'never'; it must be"),
    ("---\nplace: a b\n---\n", 2, "place: 'a b' cannot be the name of a place"),
    (
        "---\nmodel: openai-responses:x\nsettings:\n  top_p: 1\n  seed: 1\n---\n",
        5,
        "its settings cannot be kept: openai-responses:x: it has no seed",
    ),
    ("---\nname: a\x07\n---\n", 2, "a control character is no text"),
    (f"---\nname: {'[' * 30}{']' * 30}\n---\n", 2, "more than 20 levels"),
    # Read to its end, it would take an hour.
    (f"---\nname: {'[' * 100_000}\n---\n", 2, "more than 20 levels"),
]


@pytest.mark.parametrize(("text", "line", "problem"), MISTAKES, ids=[it[2][:40] for it in MISTAKES])
def test_a_mistake_in_an_agent_file_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    folder = folder_of(tmp_path, a=text)
    is_about_model = "model" in text

    with pytest.raises(DefinitionError) as refused:
        load_agents(folder, model=None if is_about_model else "openai:gpt-5")

    assert str(refused.value).startswith(f"{folder}/a.md:{line}: ")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 1, "a team has keys, and this is empty: write 'agents: "),
        ("lead: a\n", 1, "a team has agents: write"),
        ("agents:\n  a:\nleed: a\n", 3, "a team has no key 'leed'; did you mean 'lead'?"),
        (
            "model: openai:gpt-5\nagents:\n  a:\n    instructions: x\npolicy: fiffo\n",
            5,
            "there is no policy 'fiffo'; did you mean 'fifo'?",
        ),
        ("agents:\n  a:\n", 2, "agent 'a' has keys, and this is empty: write 'instr"),
        (
            "model: a:b\nagents:\n  a:\n    instruction: Be.\n",
            4,
            "an agent has no key 'instruction'; did you mean 'instructions'?",
        ),
        ("model: a:b\nagents: {a: {}}\nlead: b\n", 3, "there is no agent 'b' to lead"),
        ("agents: nowhere/\n", 1, "paths begin at the folder of this file"),
        ("agents:\n  a: team.yaml\n", 2, "is neither a folder nor a Markdown file"),
        ("agents:\n  a: {name: b}\n", 2, "its name is its key: a"),
        ("agents: {}\n", 1, "a team has agents"),
        ("agents: [a]\n", 1, "agents has keys, and this is a list"),
        ("---\nagents: {}\n---\nagents: {}\n", 3, "a file has one document"),
    ],
)
def test_a_mistake_in_a_team_file(tmp_path: Path, text: str, line: int, problem: str) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(text)

    with pytest.raises(DefinitionError) as refused:
        load_agents(file)

    assert str(refused.value).startswith(f"{file}:{line}: ")
    assert problem in str(refused.value)


def test_agents_in_a_circle_are_refused_with_the_circle(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(
        "model: a:b\nagents:\n  a: {delegates: [b]}\n  b: {delegates: [a]}\n"
    )

    with pytest.raises(DefinitionError, match=r"in a circle: (a -> b -> a|b -> a -> b)"):
        load_agents(tmp_path / "team.yaml")


def test_two_agents_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a="---\nname: x\n---\n", b="---\nname: x\n---\n")

    with pytest.raises(DefinitionError) as refused:
        load_agents(folder)

    assert re.search(r"b\.md:2: .* the other one is .*a\.md:1$", str(refused.value))


def test_binary_and_endless_files_are_refused(tmp_path: Path) -> None:
    file = folder_of(tmp_path) / "a.md"
    file.write_bytes(b"---\nname: \xff\n---\n")
    with pytest.raises(DefinitionError, match=r"a\.md:2: it is not UTF-8"):
        load_agents(file)
    file.write_text("---\nname: a\n---\n" + "x" * 1_000_001)
    with pytest.raises(DefinitionError, match="more than 1,000,000 bytes"):
        load_agents(file)
    with pytest.raises(DefinitionError, match="there is no such file or folder"):
        load_agents(tmp_path / "nowhere")
    file.unlink()
    with pytest.raises(DefinitionError, match="no agent is in this folder"):
        load_agents(file.parent)


@pytest.mark.realtime
async def test_a_parent_reads_the_descriptions_of_its_delegates(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, editor=EDITOR, researcher=RESEARCHER)
    (folder / "editor.md").write_text(EDITOR.replace("model: sonnet\n", ""))
    model = Recorder()
    editor = load_agents(folder, model=model)["editor"]

    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(editor, "Write.")

    assert model.request is not None
    (delegate_task,) = (it for it in model.request.tools if it.name == "delegate_task")
    assert "- researcher: Looks things up." in delegate_task.description
    assert "You research." not in delegate_task.description


@pytest.mark.realtime
async def test_an_agent_cannot_write_the_files_that_define_agents(tmp_path: Path) -> None:
    """It would give itself tools for the next start."""
    folder = folder_of(tmp_path, a="---\ntools: [Write]\napprove: [{allow: '*'}]\n---\n")
    calls = [
        ToolCall("write_file", {"path": path, "content": "---\ntools: Bash\n---\n"})
        for path in ("agents/a.md", "agents/new.md", "notes.md")
    ]
    model = ScriptedModel([*calls, lambda transcript: transcript[-1].text])
    agent = load_agents(folder, model=model)["a"]

    async with open_orchestrator(":memory:", machine=Machine(workspace=tmp_path)) as orchestrator:
        run = await orchestrator.run(agent, "Write.")

    assert run.output.startswith("created notes.md")
    assert (folder / "a.md").read_text().startswith("---\ntools: [Write]")
    assert not (folder / "new.md").exists()
    assert (tmp_path / "notes.md").exists()


def test_the_team_of_the_documents_is_loaded(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "agent-files.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)
    folder_of(tmp_path, researcher=RESEARCHER)
    (tmp_path / "team.yaml").write_text("".join(blocks))

    agents = load_agents(tmp_path / "team.yaml")

    assert [it.name for it in agents["editor"].delegates] == ["researcher", "checker"]


JOBS = """
model: openai:gpt-5
lead: editor
agents:
  editor: {instructions: Edit.}
  clerk: {instructions: File.}
schedule:
  brief:
    when: "0 8 * * MON"
    goal: Write the brief.
    zone: Europe/Berlin
    deliver: ["file:news/{job}.md"]
    catch_up: 4h
    may_schedule: true
  files: {when: every 2h, agent: clerk, goal: File.}
"""


def test_a_team_file_has_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    file = tmp_path / "team.yaml"
    file.write_text(JOBS)

    brief, files = load_team(str(file), trust=True).jobs

    assert (brief.id, brief.agent.name, brief.goal) == ("brief", "editor", "Write the brief.")
    assert (brief.schedule, brief.zone) == ("0 8 * * MON", "Europe/Berlin")
    assert (brief.deliver, brief.catch_up) == (("file:news/{job}.md",), "4h")
    assert brief.may_schedule
    assert (files.agent.name, files.may_schedule) == ("clerk", False)
    assert [it.id for it in load_team(f"{file}:clerk", trust=True).jobs] == ["files"]


@pytest.mark.parametrize(
    ("schedule", "line", "problem"),
    [
        ("schedule: daily", 6, "schedule has keys, and this is the text 'daily'"),
        ("schedule: {a: daily}", 6, "job 'a' has keys"),
        ("schedule: {a: {goal: x}}", 6, "job 'a' has no 'when'"),
        ("schedule: {a: {when: every 2h}}", 6, "job 'a' has no 'goal'"),
        ("schedule:\n  a: {when: every 2h, goal: x}", 7, "say which agent job 'a' is for"),
        (
            "schedule:\n  a:\n    when: every 2h\n    goal: x\n    agent: edito",
            10,
            "there is no agent 'edito'; did you mean 'editor'?",
        ),
        ("schedule:\n  a:\n    wen: every 2h", 8, "a job has no key 'wen'; did you mean 'when'?"),
        (
            "schedule:\n  a: {when: every 1s, goal: x, agent: editor}",
            7,
            "job 'a': 'every 1s' is too often",
        ),
        (
            "schedule:\n  a b: {when: every 2h, goal: x, agent: editor}",
            7,
            "is not a name for a job",
        ),
    ],
)
def test_a_mistake_in_a_job_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, line: int, problem: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    file = tmp_path / "team.yaml"
    head = "model: openai:gpt-5\nagents:\n  editor: {instructions: E.}\n"
    file.write_text(f"{head}  clerk: {{instructions: F.}}\n\n{schedule}\n")

    with pytest.raises(DefinitionError) as refused:
        load_team(str(file))

    assert str(refused.value).startswith(f"{file}:{line}: ")
    assert problem in str(refused.value)


@pytest.mark.parametrize("target", ["agents/", "team.yaml", "agents/editor.md"])
def test_commands_accept_every_form_of_agent_definition(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path, editor=EDITOR, researcher=RESEARCHER)
    (tmp_path / "team.yaml").write_text("agents: agents/\n")
    monkeypatch.chdir(tmp_path)

    assert run_command(["simulate", target, "--seeds", "1"]) == 0
    assert capsys.readouterr().out.startswith("editor: 1 simulated run")


def test_commands_report_a_mistake_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder_of(tmp_path, a=RESEARCHER, b=RESEARCHER, bad="---\ntools: \x1b[Read\n---\n")
    monkeypatch.chdir(tmp_path)

    for arguments in (["run", "agents/", "x"], ["serve", "agents"], ["chat", "agents"]):
        assert run_command(arguments) == 2
        said = capsys.readouterr().err
        assert said == "orchestrator: agents/bad.md:2: a control character is no text\n"
    (tmp_path / "agents" / "bad.md").unlink()
    (tmp_path / "team.yaml").write_text("model: openai:b\nagents: agents\n")
    assert run_command(["run", "team.yaml", "x"]) == 2
    assert "say which agent of team.yaml: FILE:NAME; it has: a, b" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "agents:\n  a:\n    model: haiku\n  b:\n    model: openai:x | opnai:gpt-5\n",
            "team.yaml:5: there is no model 'opnai:gpt-5'; did you mean 'openai:gpt-5'?",
        ),
        (
            "agents:\n  a: {instructions: x}\nmodel: 'openai:'\n",
            "team.yaml:3: there is no model 'openai:'",
        ),
        (
            "agents:\n  a: {instructions: x}\n",
            "one for all that name none: 'model:' in team.yaml, --model of run and chat",
        ),
    ],
)
def test_a_mistyped_model_is_reported_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    said: str,
) -> None:
    (tmp_path / "team.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path))

    for arguments in (["run", "team.yaml", "x"], ["serve", "team.yaml"]):
        assert run_command(arguments) == 2
        assert said in capsys.readouterr().err


def test_a_simulation_needs_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team.yaml").write_text("agents: {a: {model: 'lab:qwen'}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path))

    assert run_command(["simulate", "team.yaml", "--seeds", "1"]) == 0
    assert capsys.readouterr().out.startswith("a: 1 simulated run")


def test_a_missing_key_of_a_team_is_one_line_without_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "team.yaml").write_text("agents: {a: {model: openai:gpt-5}}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    assert run_command(["run", "team.yaml", "x"]) == 2
    assert capsys.readouterr().err.endswith(
        "model 'openai:gpt-5' needs a key: set OPENAI_API_KEY; `orchestrator simulate` tries"
        " agents without one\n"
    )


@pytest.mark.parametrize("ending", BARE_ENDINGS)
def test_a_program_is_not_run_by_the_command_that_loads_it(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`simulate` of a file that ends in a bare `trio.run` would pay for its models."""
    (tmp_path / "bare.py").write_text(BARE + ending)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    assert run_command(["simulate", "bare.py", "--seeds", "1"]) == 2
    said = capsys.readouterr().err
    assert "bare.py runs agents when it is loaded" in said
    assert 'if __name__ == "__main__":' in said


@given(edits=st.lists(st.tuples(st.integers(0, 200), st.text(max_size=4)), max_size=6))
def test_every_file_makes_agents_or_a_definition_error(
    edits: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = RESEARCHER + "approve: [{allow: Read}]\n"
    for place, more in edits:
        text = text[:place] + more + text[place + len(more) :]
    file = tmp_path_factory.getbasetemp() / "any.md"
    file.write_text(text, encoding="utf-8", errors="replace")

    with warnings.catch_warnings(), suppress(DefinitionError):
        warnings.simplefilter("ignore")
        assert load_agents(file, model="openai:gpt-5")
