"""The files that a cluster is deployed with are right, as far as that can be said without one."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli.app import build_app

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
SPECIFIERS = {"%H": "machine", "%i": "gpu"}


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def command_lines() -> list[Any]:
    """Return every call of our command line in these files, and on the page about them."""
    found: list[Any] = []
    for unit in UNITS:
        text = unit.read_text().replace("\\\n", " ")
        (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
        for specifier, value in SPECIFIERS.items():
            line = line.replace(specifier, value)
        program, *arguments = shlex.split(line)
        assert program.endswith("/bin/orchestrator")
        found.append(pytest.param(arguments, id=unit.name))
    page = (ROOT / "docs" / "cluster.md").read_text()
    found += [
        pytest.param(shlex.split(line, comments=True)[1:], id=f"cluster.md: {line[:30]}")
        for line in page.splitlines()
        if line.startswith("orchestrator ")
    ]
    for name, service in compose()["services"].items():
        if command := service.get("command"):
            found.append(pytest.param(shlex.split(command), id=f"compose: {name}"))
    return found


@pytest.mark.parametrize("arguments", command_lines())
def test_our_command_line_takes_each_command(arguments: list[str]) -> None:
    """Parsed, and not run: an option that was renamed is found here."""
    command, _, _ = build_app().parse_args(arguments, print_error=False, exit_on_error=False)

    assert command.__name__ == arguments[0]


@pytest.mark.parametrize("unit", UNITS, ids=lambda it: it.name)
def test_systemd_accepts_every_unit(unit: Path, tmp_path: Path) -> None:
    """It wants the program to be there: ours is, elsewhere."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    text = unit.read_text().replace("/opt/orchestrator/bin/orchestrator", sys.executable)
    name = unit.name.replace("@.", "@gpu.")
    (tmp_path / name).write_text(text)

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
    )

    # It also looks at the units of the machine, which may have faults of their own.
    assert [line for line in done.stderr.splitlines() if name in line] == []


def test_the_containers_name_existing_files() -> None:
    services = compose()["services"]
    assert {"database", "server-a", "server-b", "worker"} <= set(services)
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
        if "build" in service:
            build = service["build"]
            assert (DEPLOY / build["context"] / build["dockerfile"]).exists()
            # A container that is made anew has another name of its own.
            assert service["environment"]["ORCHESTRATOR_HOST"]


def test_the_deploy_files_hold_no_secret() -> None:
    """A password in an argument can be read by every user of the machine."""
    for file in DEPLOY.iterdir():
        for line in file.read_text().splitlines():
            if "postgresql://" in line:
                assert "ORCHESTRATOR_JOURNAL" in line
                assert "SECRET" in line or "POSTGRES_PASSWORD" in line
