"""The table of commands: its help, its imports, and what is in it."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

from orchestrator.cli import commands
from orchestrator.cli.app import build_app, help_page, run_command
from orchestrator.cli.command_table import COMMANDS, module_of
from orchestrator.version import VERSION

HEAVY = ("trio", "rich", "cyclopts", "agents", "delegation", "importlib.metadata")


def test_every_command_is_in_the_table_and_there() -> None:
    modules = {it.stem for it in Path(commands.__path__[0]).glob("[a-z]*.py")}
    named = {name: module_of(name) for group in COMMANDS.values() for name in group}

    assert {it.rpartition(".")[2] for it in named.values()} == modules - {"mcp_servers"}
    for name, module in named.items():
        assert hasattr(import_module(module), name)


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_help_fits_and_names_the_commands_by_use(width: int) -> None:
    lines = help_page(width).splitlines()

    assert max(map(len, lines)) <= width
    assert [line for line in lines if line.endswith(":")] == [f"{it}:" for it in COMMANDS]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_the_help_and_the_version_import_no_command(arguments: list[str]) -> None:
    program = (
        "import sys; from orchestrator.cli.app import run_command;"
        f"run_command({arguments}); print(*sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    loaded = done.stdout.splitlines()[-1].split()
    assert not {*HEAVY} & {*loaded}


def test_the_version_equals_the_distribution() -> None:
    assert version("delegation-orchestrator") == VERSION


def test_no_option_has_a_negated_twin(capsys: pytest.CaptureFixture[str]) -> None:
    for group in COMMANDS.values():
        for name in group:
            assert run_command(["help", name]) == 0
    shown = capsys.readouterr().out

    assert "--no-" not in shown.replace("--no-browser", "")
    assert "default: False" not in shown


def test_the_completion_of_a_shell_names_commands_and_options() -> None:
    script = build_app().generate_completion(prog_name="orchestrator", shell="bash")

    assert all(name in script for group in COMMANDS.values() for name in group)
    assert "--budget-usd" in script
