"""`orchestrator gateway`: what is wrong with its options is said in a line, first of all."""

from pathlib import Path

import pytest

from orchestrator.cli.app import run_command

AGENT = """
from orchestrator import Agent, ScriptedModel
helper = Agent("helper", model=ScriptedModel.always("Hello."))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path))
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "42:token")
    # Nothing listens there, should a mistake not be found.
    monkeypatch.setenv("TELEGRAM_API_URL", "http://127.0.0.1:9")
    path = tmp_path / "team.py"
    path.write_text(AGENT)
    return path


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "say where people are: --telegram"),
        (["--telegram", "--allow", "7"], "--allow 7 is not a person: write PLATFORM:"),
        (["--telegram", "--settings", "none.toml"], "none.toml cannot be read: No such"),
        (["--telegram", "--journal", "folder/"], "folder/"),
        (
            [*("--telegram-webhook", "https://bot.example.org/telegram"), *("--host", "0.0.0.0")],
            "other machines could connect to 0.0.0.0",
        ),
    ],
)
def test_a_usage_error_is_reported(
    options: list[str], complaint: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["gateway", str(file), *options]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "Traceback" not in said


def test_an_invalid_telegram_webhook_is_reported(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "bot.example.org/telegram"
    assert run_command(["gateway", str(file), "--telegram-webhook", url]) == 2
    assert "is not an https:// address" in capsys.readouterr().err
    monkeypatch.setenv("TELEGRAM_WEBHOOK_SECRET", "with a blank")
    url = f"https://{url}"
    assert run_command(["gateway", str(file), "--telegram-webhook", url]) == 2
    assert (
        "TELEGRAM_WEBHOOK_SECRET: the secret of a Telegram webhook has 1 to 256"
        in capsys.readouterr().err
    )


def test_a_missing_token_is_reported_with_its_source(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN")
    assert run_command(["gateway", str(file), "--telegram"]) == 2
    assert "TELEGRAM_BOT_TOKEN is not set: @BotFather" in capsys.readouterr().err


def test_a_missing_file_is_reported(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["gateway", f"{file}.none", "--telegram"]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_wrong_settings_are_reported(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text("alow = []")
    options = ["--telegram", "--settings", str(settings)]
    assert run_command(["gateway", str(file), *options]) == 2
    assert "unknown field `alow`" in capsys.readouterr().err


SLACK = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1", "SLACK_SIGNING_SECRET": "1"}


@pytest.mark.parametrize(
    ("options", "changed", "complaint"),
    [
        (["--slack"], {"SLACK_BOT_TOKEN": ""}, "SLACK_BOT_TOKEN is not set: the app's"),
        (
            ["--slack"],
            {"SLACK_BOT_TOKEN": "xapp-1"},
            "SLACK_BOT_TOKEN is not the token of a bot, which begins with xoxb-",
        ),
        (["--slack"], {"SLACK_APP_TOKEN": ""}, "SLACK_APP_TOKEN is not set: make one"),
        (
            ["--slack"],
            {"SLACK_APP_TOKEN": "xoxb-1"},
            "SLACK_APP_TOKEN is not the token of an app, which begins with xapp-",
        ),
        (["--slack-events"], {"SLACK_SIGNING_SECRET": " "}, "SLACK_SIGNING_SECRET is not set"),
        (["--slack", "--slack-events"], {}, "either Socket Mode (--slack) or request"),
        (["--slack-events", "--host", "0.0.0.0"], {}, "other machines could connect to 0.0.0.0"),
    ],
)
def test_a_missing_slack_setting_is_reported(
    options: list[str],
    changed: dict[str, str],
    complaint: str,
    *,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in (SLACK | changed).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLACK_API_URL", "http://127.0.0.1:9/api/")
    assert run_command(["gateway", str(file), *options]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("token", "complaint"),
    [
        (" ", "DISCORD_BOT_TOKEN is not set: https://discord.com/developers"),
        ("a token", "DISCORD_BOT_TOKEN is not the token of a bot"),
        ("ü", "DISCORD_BOT_TOKEN is not the token of a bot"),
    ],
)
def test_a_missing_discord_setting_is_reported(
    token: str,
    complaint: str,
    *,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DISCORD_BOT_TOKEN", token)
    monkeypatch.setenv("DISCORD_API_URL", "http://127.0.0.1:9/api/v10")
    assert run_command(["gateway", str(file), "--discord"]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert "Traceback" not in said
