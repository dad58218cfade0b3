"""File tools write nothing that this process runs or may import: it would have all its rights."""

import importlib
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator import agents
from orchestrator.agents.tools.files import edit_file, read_file, write_file
from orchestrator.agents.tools.files.own_code import own_code_in, search_last
from tests.agents.files_kit import Worker

pytestmark = pytest.mark.realtime


@pytest.fixture(name="project")
def folder_of_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `python app.py` has it: its folder is searched for modules first."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setattr(sys, "path", [str(project), *sys.path])
    return project


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("jsonschema_rs.py", "jsonschema_rs"),
        ("networkx/__init__.py", "networkx"),
        (f"trio{EXTENSION_SUFFIXES[0]}", "trio"),
        ("stringprep.py", "stringprep"),
    ],
)
async def test_a_file_that_would_be_imported_in_place_of_a_module_is_refused(
    project: Path, path: str, module: str
) -> None:
    refused = await Worker(project).refused(write_file, path=path, content="x = 1\n")

    assert f"in place of the module {module}" in refused
    assert not (project / path).exists()


async def test_a_module_written_by_a_command_never_shadows_an_import(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may make a module that this process has not imported yet."""
    (project / "stringprep.py").write_text("raise SystemExit('hostile')\n")
    monkeypatch.delitem(sys.modules, "stringprep", raising=False)

    search_last([project])

    assert importlib.import_module("stringprep").__file__ != str(project / "stringprep.py")
    # It is searched first again at the next start.
    refused = await Worker(project).refused(write_file, path="jsonschema_rs.py", content="x = 1\n")
    assert "in place of the module jsonschema_rs" in refused


@pytest.mark.parametrize("path", ["neighbour/__init__.py", f"neighbour{EXTENSION_SUFFIXES[0]}"])
async def test_a_package_in_place_of_a_module_beside_it_is_refused(
    project: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run at the next start."""
    (project / "neighbour.py").write_text("x = 1\n")
    neighbour = ModuleType("neighbour")
    neighbour.__file__ = str(project / "neighbour.py")
    monkeypatch.setitem(sys.modules, "neighbour", neighbour)

    refused = await Worker(project).refused(write_file, path=path, content="x = 2\n")

    assert "in place of neighbour.py" in refused
    assert project / "__pycache__" in own_code_in([project])


@pytest.mark.parametrize(
    "path", ["some_new_module.py", "checks/test_x.py", "pkg/__init__.py", "trio.md", "lib/json.py"]
)
async def test_other_code_is_written_as_always(project: Path, path: str) -> None:
    assert "created" in await Worker(project).use(write_file, path=path, content="x = 1\n")


async def test_a_module_at_the_end_of_the_path_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`orchestrator run FILE` puts the folder of the file there."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])

    await Worker(tmp_path).use(write_file, path="json.py", content="x = 1\n")


@pytest.mark.parametrize(
    "path", ["agent.py", "models/providers/new_one.py", "a_package_that_is/imported_later.py"]
)
async def test_the_code_that_runs_here_is_not_written(path: str) -> None:
    package = Path(agents.__file__).parent
    worker = Worker(package)
    before = (package / "agent.py").read_bytes()

    assert "the orchestrator" in await worker.refused(write_file, path=path, content="x = 1\n")
    await worker.use(read_file, path="agent.py")
    assert "imports from orchestrator.agents" in await worker.refused(
        edit_file, path="agent.py", old="import", new="import os, "
    )
    assert (package / "agent.py").read_bytes() == before


async def test_a_module_is_found_behind_links_of_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, searched = tmp_path / "source", tmp_path / "searched"
    (source / "package-1.0").mkdir(parents=True)
    (source / "package-1.0" / "__init__.py").touch()
    (source / "module_v2.py").touch()
    searched.mkdir()
    (searched / "a_linked_package").symlink_to(source / "package-1.0")
    (searched / "a_linked_module.py").symlink_to(source / "module_v2.py")
    monkeypatch.setattr(sys, "path", [*sys.path, str(searched)])
    for name in ("a_linked_package", "a_linked_module"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    worker = Worker(source)

    for path in ("package-1.0/late.py", "module_v2.py"):
        assert "the orchestrator" in await worker.refused(write_file, path=path, content="x = 1\n")


async def test_the_installed_packages_are_not_written() -> None:
    installed = Path(pytest.__file__).parents[1]
    refused = await Worker(installed).refused(write_file, path="mine.pth", content="import os\n")

    assert "refused" in refused
    assert not (installed / "mine.pth").exists()
