"""The home of the user in a sandbox: hidden, except toolchains, caches and settings of git.

Programs keep credentials, histories and private files in places that no list can know. So the list
names the paths that builds need, and credentials inside them stay hidden.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.sandbox.sensitive_paths import credentials_in, without_named

TOOLCHAINS: Final = (
    *(".asdf", ".bun", ".cabal/bin", ".cabal/packages", ".cabal/store", ".cargo", ".conda"),
    *(".deno", ".dotnet", ".elan", ".fnm", ".gem/ruby", ".ghcup", ".go", ".goenv", ".jenv"),
    *(".juliaup", ".julia/juliaup", ".julia/packages", ".julia/artifacts", ".julia/compiled"),
    *(".linuxbrew", ".mix/archives", ".mix/elixir", ".nix-defexpr", ".nix-profile", ".nodenv"),
    *(".npm-global", ".nvm", ".opam", ".pnpm-store", ".pub-cache/bin", ".pub-cache/hosted"),
    *(".pyenv", ".rbenv", ".rustup", ".rvm", ".sdkman", ".stack", ".volta", ".yarn"),
    *("anaconda3", "bin", "flutter", "go", "mambaforge", "micromamba", "miniconda3", "miniforge3"),
    *(".local/bin", ".local/include", ".local/lib", ".local/opt", ".local/pipx"),
    *(".local/share/fnm", ".local/share/gem", ".local/share/hatch", ".local/share/mise"),
    *(".local/share/pdm", ".local/share/pipx", ".local/share/pnpm", ".local/share/rtx"),
    *(".local/share/uv", ".local/share/virtualenv", ".local/share/virtualenvs"),
    ".local/state/nix",
)
"""Where compilers, interpreters and their packages are, in a home."""
CACHES: Final = (
    *(".ccache", ".gradle/caches", ".gradle/jdks", ".gradle/wrapper", ".ivy2/cache", ".m2/wrapper"),
    *(".m2/repository", ".npm/_cacache", ".npm/_npx", ".nuget/packages", ".sbt/boot"),
    *(f".cache/{name}" for name in ("Cypress", "Homebrew", "R", "bazel", "bazelisk", "black")),
    *(f".cache/{name}" for name in ("ccache", "clangd", "composer", "coursier", "deno")),
    *(f".cache/{name}" for name in ("electron", "fontconfig", "go-build", "golangci-lint")),
    *(f".cache/{name}" for name in ("huggingface/hub", "matplotlib", "mise", "ms-playwright")),
    *(f".cache/{name}" for name in ("mypy", "node", "node-gyp", "pdm", "pip", "pip-tools", "pnpm")),
    *(f".cache/{name}" for name in ("pre-commit", "puppeteer", "pypoetry/virtualenvs", "ruff")),
    *(f".cache/{name}" for name in ("sccache", "torch", "typescript", "uv", "yarn", "zig")),
)
"""The folders in a home where builds keep fetched and built files."""
SETTINGS: Final = (
    *(".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes"),
    *(".gitignore", ".gitignore_global", ".editorconfig", ".tool-versions", ".terminfo"),
)
"""The name of the committer, and what tools need to know about any folder."""
# A password in an address, or a header: git sends them, and a command could read them.
_SECRET: Final = re.compile(rb"://[^/\s]*@|extraheader|passw|token|secret", re.IGNORECASE)
_MOST_READ: Final = 1 << 20
_SYSTEM: Final = (Path("/usr"), Path("/etc"))


@attrs.frozen
class HomeAccess:
    """The paths of a home that a sandbox hides and opens. The paths are real, except links."""

    hidden: tuple[Path, ...]
    visible: tuple[Path, ...] = ()
    links: tuple[Path, ...] = ()
    """The links in the home that lead to a visible path."""


def home_access(home: Path, sandbox: Sandbox, writable: Iterable[Path]) -> HomeAccess:
    """Return the access to a home: by default to no more than toolchains, caches and settings.

    A home that is writable, or named in `read` itself, is open; credentials stay hidden.
    """
    real = Path(os.path.realpath(home))
    credentials = without_named(credentials_in(home), sandbox)
    read = sandbox.read
    is_open = any(real.is_relative_to(it) for it in writable) or real in (read or ())
    if is_open or any(it.is_relative_to(real) for it in _SYSTEM):
        return HomeAccess(tuple(credentials))
    named = [it for it in read or () if it.is_relative_to(real)]
    # A list that leaves the folders above the home out names all that is read.
    if read is not None and not any(real.is_relative_to(it) for it in read):
        return HomeAccess((real, *credentials), tuple(named))
    found = [*_found_in(home)]
    own = (Path(os.path.realpath(it)) for it in (sys.prefix, sys.base_prefix, *_programs()))
    return HomeAccess(
        hidden=(real, *credentials),
        visible=(
            *(Path(os.path.realpath(it)) for it in found),
            *(it for it in own if it != real and it.is_relative_to(real)),
            *named,
        ),
        links=tuple(real / os.path.relpath(it, home) for it in found if os.path.islink(it)),  # noqa: PTH114
    )


def _found_in(home: Path) -> Iterator[str]:
    top = os.fspath(home)
    for name in (*TOOLCHAINS, *CACHES, *SETTINGS):
        path = f"{top}/{name}"
        if os.path.exists(path) and not (name in SETTINGS and _has_secret(path)):  # noqa: PTH110
            yield path


def _has_secret(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return _SECRET.search(file.read(_MOST_READ)) is not None
    except OSError:
        return False  # a folder, or no command can read it either


def _programs() -> Iterator[str]:
    """Yield the folders of programs that the user has put on the path."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if Path(folder).is_absolute():
            yield folder
