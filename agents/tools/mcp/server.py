"""The values `McpCommand` and `McpUrl`: servers whose tools an agent uses.

A server is a stranger. Its annotations allow nothing, it asks for nothing unless it was named that
it may, and the values of its variables and headers are secret. A sandbox holds one that is a
command, since what it reads may be written by an agent.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.sandbox.sandbox import Sandbox
from orchestrator.agents.type_checks import has_type

NAME: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]|_(?!_)){0,31}(?<!_)")
"""No `__`, which stands between the name of a server and that of its tool."""
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# RFC 9110: the characters in the name of a header.
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
TIMEOUT: Final = 300.0
CONNECT_TIMEOUT: Final = 30.0


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise DefinitionError(f"{given!r} must be a list of texts")
    return tuple(given)


def _mapping(given: Mapping[str, str]) -> Mapping[str, str]:
    if not hasattr(given, "items"):
        # Not the value: it may have secrets.
        raise DefinitionError(f"variables and headers are a mapping, not {type(given).__name__}")
    return MappingProxyType(dict(given))


def _writable(given: Iterable[str | Path]) -> tuple[Path, ...]:
    return Sandbox(write=given).write


def _readable(given: Iterable[str | Path] | None) -> tuple[Path, ...] | None:
    return Sandbox(read=given).read


def _network(given: bool | Iterable[str]) -> bool | tuple[str, ...]:
    return Sandbox(network=given).network


@attrs.frozen
class _McpServer:
    """The settings of every server."""

    name: str
    """Its tools are called `name__tool`."""
    include: tuple[str, ...] = attrs.field(default=("*",), kw_only=True, converter=_texts)
    """Patterns of the tools that the agent gets, by the server's own names of them."""
    exclude: tuple[str, ...] = attrs.field(default=(), kw_only=True, converter=_texts)
    """Patterns of the tools that it does not get all the same."""
    timeout: float = attrs.field(default=TIMEOUT, kw_only=True)
    """The seconds after which a call has no answer, including the wait for the server."""
    connect_timeout: float = attrs.field(default=CONNECT_TIMEOUT, kw_only=True)
    """How many seconds a server has to start, connect and list its tools."""
    roots: bool = attrs.field(default=False, kw_only=True)
    """Whether it is told the workspace of the task."""
    sampling: bool = attrs.field(default=False, kw_only=True)
    """Whether it may ask the agent's model, which the budgets of the task pay for."""
    elicitation: bool = attrs.field(default=False, kw_only=True)
    """Whether it may ask the person who answers for approvals."""

    def __attrs_post_init__(self) -> None:
        if not has_type(self.name, str) or not NAME.fullmatch(self.name):
            raise DefinitionError(
                f"{self.name!r} cannot be the name of a server: a name starts with a letter, has"
                " at most 32 letters, digits, '-' and '_', and no '__'"
            )
        for field in ("include", "exclude"):
            if not all(has_type(it, str) and it for it in getattr(self, field)):
                raise self.error(f"its {field} must be patterns such as 'read_*'")
        for field in ("timeout", "connect_timeout"):
            seconds = getattr(self, field)
            if not (has_type(seconds, int, float) and seconds > 0):
                raise self.error(f"its {field} of {seconds!r} s is not a time")
        for field in ("roots", "sampling", "elicitation"):
            if not has_type(getattr(self, field), bool):
                raise self.error(f"its {field} must be True or False")

    def offers(self, tool: str) -> bool:
        """Return whether the agent gets a tool of the server."""
        return _matches(tool, self.include) and not _matches(tool, self.exclude)

    def error(self, problem: str) -> DefinitionError:
        return DefinitionError(f"server {self.name!r}: {problem}")


@attrs.frozen
class McpCommand(_McpServer):
    """A server that is a command, which is started here and speaks on its stdin and stdout."""

    command: tuple[str, ...] = attrs.field(converter=_texts, kw_only=False)
    """The program and its arguments. No shell reads them."""
    env: Mapping[str, str] = attrs.field(
        factory=dict[str, str], kw_only=True, converter=_mapping, repr=False, hash=False
    )
    """Its variables, besides PATH, HOME and the like; `${NAME}` in a value is a variable of the
    orchestrator. It gets no others."""
    cwd: Path | None = attrs.field(default=None, kw_only=True)
    """The folder it starts in, a relative one being inside the workspace; by default an empty one
    of its own."""
    write: tuple[Path, ...] = attrs.field(default=(), kw_only=True, converter=_writable)
    """The writable paths besides its own folder and temporary files; `["."]` is the workspace."""
    read: tuple[Path, ...] | None = attrs.field(default=None, kw_only=True, converter=_readable)
    """The paths that it may read besides those, the workspace and the system's folders; None is
    everything but the state of the orchestrator and the home, except its toolchains."""
    network: bool | tuple[str, ...] = attrs.field(default=False, kw_only=True, converter=_network)
    """True is all of it, False none; a list names the hosts that can be reached, by a proxy."""
    sandbox: bool = attrs.field(default=True, kw_only=True)
    """Whether a sandbox holds it to that; if not, it may do all that the user may."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.command or not all(has_type(it, str) for it in self.command):
            raise self.error("its command must be a program and its arguments")
        if not self.command[0].strip() or any("\0" in it for it in self.command):
            raise self.error("its command has no program, or contains NUL")
        for name, value in self.env.items():
            if not has_type(name, str) or not _VARIABLE_NAME.fullmatch(name):
                raise self.error(f"{name!r} cannot be the name of a variable")
            if not has_type(value, str) or "\0" in value:
                raise self.error(f"the value of {name} must be text")
        if self.cwd is not None and not has_type(self.cwd, Path):
            raise self.error("its cwd must be a Path")
        if not has_type(self.sandbox, bool):
            raise self.error("its sandbox must be True or False")
        if not self.sandbox and self.allowed != Sandbox():
            raise self.error(
                "it has sandbox=False, so nothing holds it to its write, read and network: leave"
                " those out, or sandbox=False"
            )

    @property
    def allowed(self) -> Sandbox:
        """Its sandbox, which also allows a folder of its own."""
        return Sandbox(write=self.write, read=self.read, network=self.network)

    def resolved(self, environ: Mapping[str, str]) -> "McpCommand":
        """Return the same server with the values of its variables.

        Raises:
            DefinitionError: a variable is missing.
        """
        return attrs.evolve(self, env=_resolved(self, "variable", self.env, environ))


@attrs.frozen
class McpUrl(_McpServer):
    """A server that is reached by HTTP."""

    url: str = attrs.field(kw_only=False)
    headers: Mapping[str, str] = attrs.field(
        factory=dict[str, str], kw_only=True, converter=_mapping, repr=False, hash=False
    )
    """Sent with every request; `${NAME}` in a value is a variable of the orchestrator."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not has_type(self.url, str) or not _is_url(self.url):
            raise self.error("its url must begin with https:// or http://")
        if "@" in urlsplit(self.url).netloc:
            raise self.error(
                "its url has a password in it: give it as headers={'Authorization':"
                " 'Basic ${NAME}'}"
            )
        for name, value in self.headers.items():
            if not has_type(name, str) or not _HEADER.fullmatch(name):
                raise self.error(f"{name!r} cannot be the name of a header")
            if not has_type(value, str) or not value.isprintable():
                raise self.error(f"the value of the header {name} must be one line")

    def resolved(self, environ: Mapping[str, str]) -> "McpUrl":
        """Return the same server with the values of its variables.

        Raises:
            DefinitionError: a variable is missing.
        """
        headers = _resolved(self, "header", self.headers, environ)
        return attrs.evolve(self, headers=headers)


McpServer: TypeAlias = McpCommand | McpUrl


def secrets_of(server: McpServer, environ: Mapping[str, str]) -> list[str]:
    """Return the values of a server that no text may contain; all variables in headers are."""
    # Imported late: an agent is defined more often than it is run.
    from orchestrator.agents.redaction.secret_variables import secret_values

    own = server.resolved(environ)
    if isinstance(own, McpCommand):
        return secret_values(own.env)
    assert isinstance(server, McpUrl), "what is resolved stays what it is"
    named = {
        found[1]
        for value in server.headers.values()
        for found in VARIABLE.finditer(value)
        if found[1] in environ
    }
    values = {name: environ[name] for name in named}
    # Behind `Bearer`.
    values |= {f"{it} key": value.split()[-1] for it, value in own.headers.items() if value}
    return secret_values({**own.headers, **values}, declared=named)


def _matches(tool: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and parts.scheme in {"http", "https"} and bool(parts.hostname)


def _resolved(
    server: McpServer, kind: str, values: Mapping[str, str], environ: Mapping[str, str]
) -> Mapping[str, str]:
    def value_of(name: str) -> Callable[[re.Match[str]], str]:
        def found(match: re.Match[str]) -> str:
            variable, default = match.groups()
            if variable not in environ and default is None:
                raise server.error(
                    f"its {kind} {name} needs the variable {variable}, which is not set"
                )
            return environ.get(variable, default)

        return found

    return {name: VARIABLE.sub(value_of(name), value) for name, value in values.items()}
