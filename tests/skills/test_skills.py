"""Skills: the rules of their files, the text that a model reads, and the limits of `read_skill`."""

import os
import warnings
from pathlib import Path
from typing import Any

import attrs
import pytest

from orchestrator import Machine, MemoryJournal, Sandbox, load_agents, open_orchestrator
from orchestrator.agents import (
    Agent,
    DefinitionError,
    RefusedBy,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    confirm,
    tool,
)
from orchestrator.agents.skills import MOST_BYTES, Skill, skills_in
from orchestrator.products.history.replay.run import replay
from orchestrator.tools import terminal
from tests.kit import run
from tests.skills.cases import CASES, Case, head

pytestmark = pytest.mark.realtime  # files are read in threads


def skill(top: Path, name: str = "pdf", text: str = "Fill in forms.") -> Path:
    return Case(name, head(name=name, description=text)).write(top)


def read(name: str = "pdf", path: str = "") -> ToolCall:
    return ToolCall("read_skill", {"name": name, "path": path} if path else {"name": name})


def reader(*calls: ToolCall, **options: Any) -> tuple[Agent, list[ToolMessage]]:
    """Return an agent that makes calls one after the other, and the answers that it reads."""
    answers: list[ToolMessage] = []

    def end(transcript: Transcript) -> str:
        answers.extend(it for it in transcript if isinstance(it, ToolMessage))
        return "done"

    return Agent("reader", model=ScriptedModel([*calls, end]), **options), answers


@pytest.mark.parametrize("case", CASES, ids=[case.folder[:20] for case in CASES])
def test_skills_keep_the_rules_of_the_specification(case: Case, tmp_path: Path) -> None:
    folder = case.write(tmp_path)
    if case.problem:
        with pytest.raises(DefinitionError, match=case.problem) as caught:
            [*skills_in(folder)]
        assert str(folder / "SKILL.md") in str(caught.value)
    else:
        (found,) = skills_in(folder)
        assert found.name == case.folder
        assert bool(found.unknown) is bool(case.differs)


def test_an_unknown_key_of_a_skill_is_a_warning(tmp_path: Path) -> None:
    Case("pdf", head(name="pdf", description="It.", model="opus")).write(tmp_path)
    with pytest.warns(UserWarning, match="has no 'model'"):
        agent = Agent("a", model=ScriptedModel([]), skills=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attrs.evolve(agent, description="a copy")


def test_instructions_have_the_names_of_skills_in_one_order(tmp_path: Path) -> None:
    for name in ("web", "pdf"):
        skill(tmp_path, name, "Use it\n  when needed.".replace("\n ", ""))
    one, other = (Agent("a", model="m:m", skills=[tmp_path], instructions="Hi.") for _ in range(2))
    assert one.plan.instructions == other.plan.instructions
    assert str(one.plan.instructions).splitlines()[-2:] == [
        "- pdf: Use it when needed.",
        "- web: Use it when needed.",
    ]
    assert "Do it" not in str(one.plan.instructions)
    assert [it.name for it in one.tools] == ["read_skill"]


def test_a_changed_copy_of_an_agent_has_the_tool_of_its_skills_once(tmp_path: Path) -> None:
    agent = Agent("a", model="m:m", skills=skill(tmp_path))
    (found,) = agent.skills
    assert isinstance(found, Skill)
    assert [it.name for it in attrs.evolve(agent, language="German").tools] == ["read_skill"]
    assert not attrs.evolve(agent, skills=(), tools=()).tools


def test_a_description_cannot_add_lines_to_the_instructions(tmp_path: Path) -> None:
    text = '"one\\n\\n- two: \\x1b[31mred"'
    agent = Agent("a", model="m:m", skills=skill(tmp_path, text=text))
    assert str(agent.plan.instructions).splitlines()[-1] == "- pdf: one - two: [31mred"


async def test_a_model_loads_the_text_and_then_the_files_of_a_skill(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    (folder / "references").mkdir()
    (folder / "references/forms.md").write_text("Form 7")
    (folder / ".hidden").write_text("x")
    agent, answers = reader(read(), read(path="references/forms.md"), skills=tmp_path)
    await run(agent)
    assert (
        answers[0].text == "# Do it\n\n[Files of this skill, for read_skill: references/forms.md.]"
    )
    assert answers[1].text == "Form 7"


async def test_no_path_leads_out_of_a_skill(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    (tmp_path / "secret").write_text("x")
    (folder / "inside").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "here").symlink_to("inside")
    (folder / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    paths = ("../secret", "/etc/passwd", "~/x", "link", "here", "up/secret", "pipe", "a\0b", "none")
    agent, answers = reader(*(read(path=it) for it in paths), skills=folder)
    await run(agent)
    assert [it.failed for it in answers] == [True] * len(paths)


async def test_large_and_binary_files_of_a_skill_are_refused(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    (folder / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    agent, answers = reader(read(path="large"), read(path="picture.png"), skills=folder)
    await run(agent)
    assert [it.failed for it in answers] == [True, True]


async def test_an_unknown_skill_is_an_error_with_the_nearest_name(tmp_path: Path) -> None:
    agent, answers = reader(read("pfd"), skills=skill(tmp_path))
    await run(agent)
    assert "did you mean 'pdf'" in answers[0].text


def test_links_instead_of_skills_are_refused(tmp_path: Path) -> None:
    outside = skill(tmp_path, "outside")
    folder = tmp_path / "skills"
    folder.mkdir()
    (folder / "outside").symlink_to(outside)
    with pytest.raises(DefinitionError, match="is a link"):
        Agent("a", model="m:m", skills=folder)
    (outside / "SKILL.md").rename(tmp_path / "text.md")
    (outside / "SKILL.md").symlink_to(tmp_path / "text.md")
    with pytest.raises(DefinitionError, match="links are not followed"):
        Agent("a", model="m:m", skills=outside)


def test_skills_of_two_folders_with_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="two called 'pdf'"):
        Agent("a", model="m:m", skills=[skill(tmp_path), tmp_path])


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_folder_without_skills_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="in skills="):
        Agent("a", model="m:m", skills=tmp_path / folder)


def test_a_tool_of_the_name_read_skill_is_refused(tmp_path: Path) -> None:
    @tool
    def read_skill() -> str:
        """Mine."""
        return ""

    with pytest.raises(DefinitionError, match="two tools called 'read_skill'"):
        Agent("a", model="m:m", skills=skill(tmp_path), tools=[read_skill])


async def test_a_rule_decides_about_loading_a_skill(tmp_path: Path) -> None:
    agent, answers = reader(read(), skills=skill(tmp_path), approve=[confirm("read_skill")])
    await run(agent)
    assert answers[0].refused_by is RefusedBy.APPROVAL


async def test_a_script_of_a_skill_runs_in_the_sandbox(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    (folder / "scripts").mkdir()
    (folder / "scripts/say.sh").write_text(f"echo said; echo x > {folder}/new")
    command = ToolCall("terminal", {"command": f"sh {folder}/scripts/say.sh"})
    agent, answers = reader(
        read(), command, skills=folder, tools=[terminal], sandbox=Sandbox(read=[])
    )
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    await run(agent, machine=Machine(workspace=workspace))
    assert f"[Its folder is {folder}.]" in answers[0].text
    if answers[1].refused_by is None:  # a machine without a sandbox asks a person
        assert "said" in answers[1].text
        assert not (folder / "new").exists()


async def test_a_replay_reads_no_skill(tmp_path: Path) -> None:
    folder = skill(tmp_path)
    agent, _ = reader(read(), skills=folder)
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "go")
    (folder / "SKILL.md").unlink()
    assert (await replay(journal.entries, agent)).is_same


def test_skills_of_a_file_are_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    Case("pdf", head(name="pdf", description="It.", model="x")).write(tmp_path / "skills")
    team = tmp_path / "team.yaml"
    team.write_text(
        "agents: {a: {instructions: Hi, model: 'openai:m', skills: [skills, AGENTS.md]}}"
    )
    with pytest.warns(UserWarning, match="has no 'model'"):
        agents = load_agents(team)
    found, file = agents["a"].skills
    assert isinstance(found, Skill)
    assert (found.name, file) == ("pdf", "AGENTS.md")


@pytest.fixture
def claude_agents(tmp_path: Path) -> Path:
    folder = tmp_path / ".claude/agents"
    folder.mkdir(parents=True)
    return folder


def test_a_file_of_claude_code_names_skills_beside_its_folder(claude_agents: Path) -> None:
    (claude_agents.parent / "skills").mkdir()
    skill(claude_agents.parent / "skills")
    text = "---\nname: a\nmodel: opus\ntools: []\nskills: pdf\n---\nHi."
    (claude_agents / "a.md").write_text(text)
    (found,) = load_agents(claude_agents)["a"].skills
    assert isinstance(found, Skill)
    assert found.name == "pdf"
