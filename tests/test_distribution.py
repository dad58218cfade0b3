"""What we ship: three packages and nothing else, each of them typed."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_three_packages_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*build, "--outdir", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert wheel.name.startswith("delegation_orchestrator-")
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "agents",
        "delegation",
        "orchestrator",
        "delegation_orchestrator",
    }
    for room in ("agents", "delegation", "orchestrator"):
        assert f"{room}/py.typed" in names
    # The pages of the reports and the console, built ahead: installing them needs no node.
    for built in ("report.js", "report.css", "console.js", "console.css", "worker.js"):
        assert f"orchestrator/products/viewer/built/{built}" in names
    assert not any("viewer/sources/" in name for name in names)


@pytest.mark.parametrize("name", ["run", "all", "dev", "dist", "weights"])
def test_what_is_installed_is_pinned_by_its_hash_without_an_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    requirements = text.replace("\\\n", "").splitlines()

    assert requirements
    for requirement in requirements:
        assert "==" in requirement
        assert "--hash=sha256:" in requirement
        assert "//" not in requirement


def test_the_viewer_is_built_from_packages_that_are_pinned_by_their_hash() -> None:
    lock = json.loads((ROOT / "orchestrator/products/viewer/sources/package-lock.json").read_text())
    packages = {name: one for name, one in lock["packages"].items() if name}

    assert "node_modules/d3-hierarchy" in packages
    for package in packages.values():
        assert package["integrity"].startswith("sha512-")
        assert "resolved" not in package
