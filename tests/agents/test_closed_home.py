"""The home in a sandbox: credentials of every program are hidden, and toolchains work."""

import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from orchestrator import Agent, Machine, Sandbox, ScriptedModel, ToolCall, open_orchestrator
from orchestrator.tools import terminal
from tests.agents.test_sandbox_backends import backend_named

pytestmark = [
    pytest.mark.realtime,
    pytest.mark.skipif(sys.platform != "linux", reason="these are Linux's"),
]
CREDENTIALS = [
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/opencode/auth.json",
    ".local/share/opencode/auth.json",
    ".config/github-copilot/apps.json",
    ".config/git/credentials",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".bash_history",
    ".zsh_history",
    ".psql_history",
    ".python_history",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".gem/credentials",
    ".config/composer/auth.json",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".yarnrc.yml",
    ".config/heroku/credentials",
    ".fly/config.yml",
    ".config/wrangler/config.toml",
    ".cache/huggingface/token",
    ".huggingface/token",
    ".kaggle/kaggle.json",
    ".config/BraveSoftware/Brave-Browser/Default/Cookies",
    ".thunderbird/p/logins.json",
    ".local/share/kwalletd/kdewallet.kwl",
    "snap/firefox/common/.mozilla/firefox/p/logins.json",
    ".var/app/org.mozilla.firefox/.mozilla/firefox/p/logins.json",
    ".config/Code/User/globalStorage/state.vscdb",
    ".config/age/keys.txt",
    ".config/Bitwarden/data.json",
    ".electrum/wallets/default_wallet",
    ".bitcoin/wallet.dat",
    ".oci/config",
    ".aliyun/config.json",
    ".config/scaleway/config.yaml",
    ".config/hcloud/cli.toml",
    ".config/linode-cli",
    ".snowflake/config.toml",
    ".databrickscfg",
    ".dbt/profiles.yml",
    ".env",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".netrc",
    ".kube/config",
    ".docker/config.json",
    ".gnupg/x",
    ".config/gh/hosts.yml",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".pgpass",
    ".vault-token",
]
READABLE = [
    ".cargo/bin/it",
    ".rustup/it",
    ".nvm/it",
    "go/pkg/it",
    ".cache/pip/it",
    ".cache/uv/it",
    ".local/bin/it",
]
SAYS = 'for f in %s; do cat "$f" >/dev/null 2>&1 && echo $f; done; true'


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """Not in `/tmp`, which every command may have for itself."""
    made = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".home-"))
    for name in (*CREDENTIALS, *READABLE, "data/it", ".cargo/credentials.toml"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("MAGIC")
    (made / "work").mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(made / "state"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["bubblewrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    backend_named(request.param)
    return str(request.param)


async def say(command: str, home: Path, backend: str, sandbox: Sandbox | None = None) -> str:
    """Return the output of a command of an agent whose workspace is in the home."""
    model = ScriptedModel([ToolCall("terminal", {"command": command}), lambda it: it[-1].text])
    agent = Agent("it", model=model, tools=[terminal], sandbox=sandbox)
    machine = Machine(workspace=home / "work", sandbox=backend)
    async with open_orchestrator(":memory:", machine=machine) as orchestrator:
        return (await orchestrator.run(agent, "go")).output


async def test_no_credentials_of_a_home_are_readable(home: Path, backend: str) -> None:
    names = [*CREDENTIALS, "data/it", ".cargo/credentials.toml"]

    said = await say(f"cd ~; {SAYS % ' '.join(names)}; echo ended", home, backend)

    assert [it for it in names if f"{it}\\n" in said] == []
    assert "ended" in said


async def test_toolchains_and_caches_of_a_home_are_readable(home: Path, backend: str) -> None:
    said = await say(f"cd ~; {SAYS % ' '.join(READABLE)}", home, backend)

    assert [it for it in READABLE if it not in said] == []


async def test_a_sandbox_opens_named_paths_of_the_home(home: Path, backend: str) -> None:
    sandbox = Sandbox(read=["/", "~/data"])

    said = await say(
        f"cd ~; {SAYS % 'data/it .cargo/bin/it .ssh/id_ed25519'}", home, backend, sandbox
    )

    assert "data/it" in said
    assert ".cargo/bin/it" in said
    assert "id_ed25519" not in said


async def test_a_named_home_is_readable_without_its_credentials(home: Path, backend: str) -> None:
    sandbox = Sandbox(read=["/", "~"])

    said = await say(f"cd ~; {SAYS % '.fly/config.yml .ssh/id_ed25519'}", home, backend, sandbox)

    assert ".fly/config.yml" in said
    assert "id_ed25519" not in said


async def test_a_python_of_pyenv_runs(home: Path, backend: str) -> None:
    program = home / ".pyenv" / "versions" / "3.x" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho snake $1\n")
    program.chmod(0o755)
    (home / ".pyenv" / "shims").mkdir()
    shim = home / ".pyenv" / "shims" / "python"
    shim.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    shim.chmod(0o755)

    assert "snake charmer" in await say('"$HOME/.pyenv/shims/python" charmer', home, backend)


@pytest.mark.parametrize("is_link", [False, True])
async def test_git_knows_the_committer(home: Path, backend: str, is_link: bool) -> None:
    settings = home / ("dotfiles" if is_link else ".gitconfig")
    settings.write_text("[user]\n\tname = Ann\n")
    if is_link:
        (home / ".gitconfig").symlink_to("dotfiles")

    assert "Ann" in await say("git config user.name", home, backend)


async def test_git_settings_with_a_token_are_hidden(home: Path, backend: str) -> None:
    (home / ".gitconfig").write_text(
        '[user]\n\tname = Ann\n[url "https://x:ghp_1@github.com/"]\n\tinsteadOf = gh:\n'
    )

    assert "ghp_1" not in await say("cat ~/.gitconfig; git config user.name", home, backend)


async def test_the_home_of_this_process_keeps_its_interpreter(home: Path, backend: str) -> None:
    said = await say(f"{sys.executable} -c 'print(6 * 7)'", home, backend)

    assert "42" in said
