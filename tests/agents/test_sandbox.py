"""The value `Sandbox`: what it refuses, and that it only tightens."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import Agent, DefinitionError, Sandbox, ScriptedModel

WIDE = Sandbox(network=True, write=["/a", "/b"], processes=None, disk=None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"network": "pypi"},
        {"network": [""]},
        {"write": "/tmp"},
        {"read": Path("/tmp")},
        {"cpu": 0},
        {"memory": -1},
        {"processes": True},
        {"disk": "much"},
    ],
)
def test_a_contradictory_sandbox_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"[sS]andbox"):
        Sandbox(**wrong)


def test_an_agent_accepts_only_a_sandbox() -> None:
    with pytest.raises(DefinitionError, match="Sandbox"):
        Agent("a", model=ScriptedModel([]), sandbox=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("own", "parent", "both"),
    [
        (Sandbox(network=True), Sandbox(network=False), {"network": False}),
        (Sandbox(network=False), Sandbox(network=True), {"network": False}),
        (Sandbox(network=True), Sandbox(network=["example.com"]), {"network": ("example.com",)}),
        (Sandbox(write=["/a/x", "/c"]), Sandbox(write=["/a"]), {"write": (Path("/a/x"),)}),
        (Sandbox(write=["/"]), Sandbox(write=["/a"]), {"write": (Path("/a"),)}),
        (Sandbox(), Sandbox(write=["/a"]), {"write": ()}),
        (Sandbox(read=["/a"]), Sandbox(), {"read": (Path("/a"),)}),
        (Sandbox(), Sandbox(read=["/a"]), {"read": (Path("/a"),)}),
        (Sandbox(read=["/b"]), Sandbox(read=["/a"]), {"read": ()}),
        (Sandbox(cpu=5, memory=9), Sandbox(cpu=9, memory=5), {"cpu": 5, "memory": 5}),
        (
            Sandbox(processes=None, disk=7),
            Sandbox(processes=3, disk=None),
            {"processes": 3, "disk": 7},
        ),
    ],
)
def test_a_nested_sandbox_allows_the_intersection_of_both(
    own: Sandbox, parent: Sandbox, both: dict[str, Any]
) -> None:
    within = own.within(parent)

    assert {name: getattr(within, name) for name in both} == both


def test_a_sandbox_within_itself_is_the_same() -> None:
    assert WIDE.within(WIDE) == WIDE


def test_relative_paths_are_inside_the_workspace_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    placed = Sandbox(write=["link", "/other"], read=["~/x"]).at(tmp_path)

    assert placed.write == (tmp_path / "real", Path("/other"))
    assert placed.read == (Path.home().resolve() / "x",)
