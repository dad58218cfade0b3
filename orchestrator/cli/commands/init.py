"""`orchestrator init`: write a small team to start with."""

import os
from pathlib import Path

from orchestrator.cli.errors import CommandError
from orchestrator.cli.team_template import team_files
from orchestrator.cli.terminal.console import Terminal, command, print_hint
from orchestrator.ports.execution import known_providers


def init(folder: Path = Path(), /, *, model: str | None = None) -> None:
    """Write a small team and its test: team.py and test_team.py. Both run unchanged.

    Args:
        folder: The folder to write to; by default this one. Existing files are never replaced.
        model: The name of the agents' model, such as openai:gpt-5-mini; by default the models are
            scripted, and need no key.
    """
    if model is not None:
        _require_name(model)
    files = {folder / name: text for name, text in team_files(model).items()}
    for file in files:
        if file.exists():
            raise CommandError(
                f"{file} is there already; say another folder: orchestrator init FOLDER"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
        print(file)
    team = str(folder / "team.py")
    goal = "Why is the sky blue?"
    print_hint(
        Terminal(stderr=True),
        f"Run it:       {command('run', team, goal, journal=None)}",
        f"Talk to it:   {command('chat', team, journal=None)}",
        f"Test it:      pytest {folder}",
    )


def _require_name(model: str) -> None:
    """Refuse an unknown model now, instead of when the team runs. A key is needed only then."""
    provider, _, name = model.partition(":")
    providers = (*known_providers(os.environ), "local")
    if provider not in providers or not name.replace("-", "").replace(".", "").isalnum():
        raise CommandError(
            f"--model is {model!r}; say PROVIDER:MODEL, such as openai:gpt-5-mini; providers are"
            f" {', '.join(providers)}"
        )
