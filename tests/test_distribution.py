"""What we ship: three packages and nothing else, each of them typed."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_three_packages_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run(
        [*build, "--outdir", str(tmp_path), str(ROOT)], check=True, capture_output=True
    )
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
    # The viewer of the reports, built ahead: installing it needs no node.
    for built in ("viewer.js", "viewer.css"):
        assert f"orchestrator/report/built/{built}" in names
    assert not any("report/viewer/" in name for name in names)


def test_versions_are_pinned_without_an_address() -> None:
    pins = (ROOT / "constraints.txt").read_text().splitlines()

    assert len(pins) > 30
    for pin in pins:
        assert "==" in pin
        assert "//" not in pin
