"""The wheel and the sdist hold one typed import package, and every requirement has a hash."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINK = 0o120000
"""The file type of a symbolic link, in the mode that a wheel keeps of each file."""


def build(source: Path, folder: Path, *kinds: str) -> Path:
    """Build one distribution, and return its file."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(folder)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout."""
    return zipfile.ZipFile(build(ROOT, tmp_path_factory.mktemp("wheel"), "--wheel"))


def test_wheel_holds_one_import_package(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    top = {name.split("/")[0] for name in names}
    metadata = {name for name in top if name.endswith(".dist-info")}

    assert top - metadata == {"orchestrator"}
    assert len(metadata) == 1
    assert {
        "orchestrator/py.typed",
        "orchestrator/agents/__init__.py",
        "orchestrator/agents/models/provider_table.py",
        "orchestrator/delegation/__init__.py",
        "orchestrator/delegation/events/facts.py",
    } <= set(names)


def test_wheel_holds_copies_in_place_of_the_links(wheel: zipfile.ZipFile) -> None:
    links = [it.filename for it in wheel.infolist() if it.external_attr >> 16 & 0o170000 == LINK]
    names = wheel.namelist()

    assert links == []
    assert len(names) == len(set(names)), "a file is packed twice"


def test_wheel_holds_the_built_viewer_and_not_its_sources(wheel: zipfile.ZipFile) -> None:
    """Installing it needs no node."""
    names = wheel.namelist()

    for built in ("report.js", "report.css", "console.js", "console.css", "worker.js"):
        assert f"orchestrator/products/viewer/built/{built}" in names
    assert not any("viewer/sources/" in name for name in names)


def test_sdist_makes_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    (tmp_path / "wheel").mkdir()

    with tarfile.open(build(ROOT, tmp_path / "sdist", "--sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    rebuilt = zipfile.ZipFile(build(source, tmp_path / "wheel", "--wheel"))

    assert sorted(rebuilt.namelist()) == sorted(wheel.namelist())


@pytest.mark.parametrize(
    "name", ["run", "all", "cluster", "dev", "dist", "neighbours", "postgres", "weights"]
)
def test_requirements_are_pinned_by_hash_without_an_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    requirements = text.replace("\\\n", "").splitlines()

    assert requirements
    for requirement in requirements:
        assert "==" in requirement
        assert "--hash=sha256:" in requirement
        assert "//" not in requirement


def test_viewer_packages_are_pinned_by_hash() -> None:
    lock = json.loads((ROOT / "orchestrator/products/viewer/sources/package-lock.json").read_text())
    packages = {name: one for name, one in lock["packages"].items() if name}

    assert "node_modules/d3-hierarchy" in packages
    for package in packages.values():
        assert package["integrity"].startswith("sha512-")
        assert "resolved" not in package
