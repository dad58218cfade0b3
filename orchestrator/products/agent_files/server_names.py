"""The servers that agents of files name: written out, or by their names in `.mcp.json`."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from orchestrator.agents import DefinitionError
from orchestrator.agents.tools.files.own_code import SERVER_FILE, protect_definitions
from orchestrator.agents.tools.mcp.server import McpServer
from orchestrator.agents.tools.mcp.server_file import McpServers, server_from
from orchestrator.ports.files import foreign_file
from orchestrator.products.agent_files.located import Located

KEYS: Final = ("servers", "mcpServers")
"""The second is the word of Claude Code."""
EXAMPLE: Final = "{files: {command: npx, args: [-y, server]}}"


def servers_of(fields: Mapping[str, Located]) -> list[McpServer]:
    """Return the servers of an agent."""
    found = [
        server
        for key in KEYS
        if key in fields and fields[key].value is not None
        for server in _servers(fields[key], key)
    ]
    return list({it.name: it for it in found}.values())


def _servers(found: Located, key: str) -> list[McpServer]:
    if isinstance(found.value, Mapping):
        return [_written_out(name, it) for name, it in found.value.items()]
    if isinstance(found.value, str):
        return [_named(it) for it in found.as_names(key)]
    servers: list[McpServer] = []
    for item in found.as_items(key):
        if isinstance(item.value, Mapping):
            servers += [_written_out(name, it) for name, it in item.value.items()]
        else:
            servers.append(_named(item))
    return servers


def _written_out(name: str, found: Located) -> McpServer:
    found.as_mapping("a server", EXAMPLE)
    try:
        return server_from(name, found.as_plain())
    except (DefinitionError, TypeError) as exc:
        raise found.error(str(exc)) from exc


def _named(found: Located) -> McpServer:
    name = found.as_text("a server")
    nearer: list[Path] = []
    for folder in _searched(found.file):
        file = folder / SERVER_FILE
        if not file.is_file():
            nearer.append(file)
            continue
        if problem := foreign_file(file):
            raise found.error(f"there is no server {name!r} to trust: {problem}")
        # The nearest file wins, so a command that makes one would choose the servers.
        protect_definitions(nearer)
        try:
            return McpServers.from_file(file)[name]
        except DefinitionError as exc:
            raise found.error(f"{exc} (of {file})") from exc
    raise found.error(
        f"there is no server {name!r}: no {SERVER_FILE} is in the folder of this file, or above it"
        f" up to {nearer[-1].parent}. Write it out: {EXAMPLE!r}"
    )


def _searched(file: Path) -> Iterator[Path]:
    """Yield the folders above a file, up to the top of its repository or of its owner's folders."""
    folders = [*file.absolute().parents]
    owner = folders[0].stat().st_uid
    for folder in folders:
        if folder.stat().st_uid != owner:
            return
        yield folder
        if (folder / ".git").exists():
            return


def is_of_server(tool: str, servers: Collection[str]) -> bool:
    """Return whether a name or pattern in a rule is about tools of a server."""
    server, separator, _ = tool.partition("__")
    return bool(separator) and server in servers
