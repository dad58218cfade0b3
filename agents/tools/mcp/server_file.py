"""Servers from the configuration that other programs have, too: `mcpServers` in JSON.

What such a file says is said to Claude Code and others in the same words. Our own settings of a
server (`include`, `timeout`, ...) stand beside them, and others leave them out.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.agents.tools.files.own_code import protect_definitions
from orchestrator.agents.tools.mcp.json_values import list_in, object_in
from orchestrator.agents.tools.mcp.server import VARIABLE, McpCommand, McpServer, McpUrl

OWN_SETTINGS: Final = (
    *("include", "exclude", "timeout", "connect_timeout"),
    *("roots", "sampling", "elicitation"),
)
COMMAND_SETTINGS: Final = ("write", "read", "network", "sandbox")
"""The sandbox settings of a server that is a command."""
_HTTP: Final = frozenset({"http", "streamable-http", "streamableHttp", "streamable_http"})
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9-]+")
MOST_BYTES: Final = 2**20


@attrs.frozen
class McpServers:
    """The servers of a file, by their names: `Agent(servers=McpServers.from_file(".mcp.json"))`."""

    servers: Mapping[str, McpServer]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "McpServers":
        """Read a file that has `mcpServers`.

        Raises:
            DefinitionError: it cannot be read, or a server of it is wrong.
        """
        file = Path(path)
        protect_definitions([file])
        try:
            if file.stat().st_size > MOST_BYTES:
                raise DefinitionError(f"{file} is longer than {MOST_BYTES:,} bytes")
            content = object_in(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as exc:
            raise DefinitionError(f"{file} cannot be read: {exc}") from exc
        entries = object_in(content.get("mcpServers"))
        if not entries:
            raise DefinitionError(
                f"{file} has no servers: it must be an object with the key 'mcpServers'"
            )
        servers: dict[str, McpServer] = {}
        for name, entry in entries.items():
            config = object_in(entry)
            if config.get("disabled") is True:
                continue
            try:
                server = server_from(name, config)
            except DefinitionError as exc:
                raise DefinitionError(f"{file}: {exc}") from exc
            if any(it.name == server.name for it in servers.values()):
                raise DefinitionError(f"{file}: two servers are called {server.name!r}")
            servers[name] = server
        return cls(servers)

    def __getitem__(self, name: str) -> McpServer:
        """Return the server of that name in the file."""
        if name not in self.servers:
            raise DefinitionError(
                f"there is no server {name!r}; {did_you_mean(name, list(self.servers))}"
            )
        return self.servers[name]

    def __iter__(self) -> Iterator[McpServer]:
        return iter(self.servers.values())

    def __len__(self) -> int:
        return len(self.servers)


def server_from(name: str, config: Mapping[str, Any]) -> McpServer:
    """Return the server that a piece of configuration describes.

    Characters in its name that no tool may have become hyphens. Raise `DefinitionError` if it
    describes none.
    """
    plain = _NO_NAME.sub("-", name.strip()).strip("-")
    kind = config.get("type", config.get("transport"))
    own: dict[str, Any] = {key: config[key] for key in OWN_SETTINGS if key in config}
    if kind == "sse":
        raise DefinitionError(
            f"server {name!r} is of the type 'sse', which the protocol has given up: use its"
            " address for streamable HTTP, with the type 'http'"
        )
    if "url" in config and (kind is None or kind in _HTTP):
        _refuse_variables(name, "url", [config["url"]])
        headers = object_in(config.get("headers"))
        return McpUrl(plain, config["url"], headers=headers, **own)
    if "command" in config and kind in {None, "stdio"}:
        command = [config["command"], *list_in(config.get("args"))]
        _refuse_variables(name, "args", command)
        cwd = config.get("cwd")
        own |= {key: config[key] for key in COMMAND_SETTINGS if key in config}
        return McpCommand(
            plain,
            command,
            env=object_in(config.get("env")),
            cwd=Path(cwd) if isinstance(cwd, str) else None,
            **own,
        )
    raise DefinitionError(
        f"server {name!r} has neither a command nor a url: {{'command': 'npx', 'args': [...]}}"
    )


def _refuse_variables(name: str, key: str, values: list[Any]) -> None:
    for value in values:
        if isinstance(value, str) and VARIABLE.search(value):
            raise DefinitionError(
                f"server {name!r}: variables are read in the values of 'env' and 'headers' only,"
                f" and its {key!r} has one: processes and logs show it"
            )
