"""Files in chats: files from people go to the workspace, and agents send files from the workspace.

The sender's name for a file is untrusted text: it is made harmless, and the file goes into our own
folder. A file that an agent sends is opened like its file tools open files: never outside of the
workspace.
"""

import hashlib
import os
import re
import secrets
import unicodedata
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from orchestrator.agents import Agent, Part, Tool, ToolError, tool
from orchestrator.agents.tools.files.workspace import Workspace, current_workspace
from orchestrator.delegation.session_context import session_strings
from orchestrator.ports.errors import error_text
from orchestrator.products.chat.conversations import address_of
from orchestrator.products.chat.errors import ChatError, RetryAfterError
from orchestrator.products.chat.platform import Attachment, IncomingMessage, Platform

FOLDER: Final = "attachments"
LONGEST_NAME: Final = 80
SECONDS: Final = 60.0
"""The seconds that all files of a message may take."""
MOST_FILES: Final = 10
SHOWN_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The image types that models can see."""
LARGEST_SHOWN: Final = 5_000_000
_NOT_HARMLESS: Final = re.compile(r"[^\w.\- ()+]+")


@attrs.frozen
class Received:
    """The files of a message."""

    lines: tuple[str, ...] = ()
    """The lines about the files that the agent reads."""
    parts: tuple[Part, ...] = ()
    """The images that the agent can see."""


async def receive_files(platform: Platform, message: IncomingMessage, workspace: Path) -> Received:
    """Fetch the files of a message into a workspace, and report the result of each."""
    lines: list[str] = []
    parts: list[Part] = []
    with trio.move_on_after(SECONDS) as scope:
        await trio.lowlevel.checkpoint()
        for number, file in enumerate(message.attachments[:MOST_FILES]):
            name = harmless_name(file.name)
            try:
                content = await _content(platform, file)
                saved = f"{FOLDER}/{_unique(message, number)}-{name}"
                await trio.to_thread.run_sync(_save, workspace, saved, content)
            except (ChatError, ToolError) as exc:
                lines.append(f"[The file {name} did not come: {error_text(exc)}]")
                continue
            lines.append(f"[A file came: {saved}, {len(content)} bytes]")
            if file.media_type in SHOWN_IMAGES and 0 < len(content) <= LARGEST_SHOWN:
                parts.append(Part(file.media_type, data=content, name=name))
    await trio.lowlevel.checkpoint()
    if scope.cancelled_caught:
        lines.append("[The other files did not come in time]")
    if len(message.attachments) > MOST_FILES:
        lines.append(f"[Only {MOST_FILES} files of a message are taken]")
    return Received(tuple(lines), tuple(parts))


async def _content(platform: Platform, file: Attachment) -> bytes:
    most = platform.largest_download
    if file.size is not None and file.size > most:
        await trio.lowlevel.checkpoint()
        raise ChatError(f"it has {file.size} bytes, and {platform.name} lets us fetch {most}")
    return await platform.download(file)


def harmless_name(name: str) -> str:
    """Return the name of a file that cannot be a path, hidden or unprintable."""
    text = unicodedata.normalize("NFKC", name).replace("\\", "/").rpartition("/")[2]
    text = _NOT_HARMLESS.sub("_", text).strip(" .")
    stem, dot, suffix = text.rpartition(".")
    if dot and len(suffix) < 10:
        return f"{(stem or 'file')[: LONGEST_NAME - 10]}.{suffix}"
    return text[:LONGEST_NAME] or "file"


def _unique(message: IncomingMessage, number: int) -> str:
    """Return a unique prefix for a file, which is the same when its message comes again."""
    names = f"{message.address}\0{message.id}\0{number}"
    return hashlib.sha256(names.encode(errors="replace")).hexdigest()[:8]


def _save(workspace: Path, path: str, content: bytes) -> None:
    with Workspace(workspace).find(path, writes=True, make_folders=True) as entry:
        entry.replace(content, entry.status())


def with_file_tool(agent: Agent[Any], platforms: Sequence[Platform]) -> Agent[Any]:
    """Return an agent that can send files from its workspace, if it has file tools."""
    names = {it.name for it in agent.tools}
    if "send_file" in names or all(it.machine is None for it in agent.tools):
        return agent
    return attrs.evolve(agent, tools=(*agent.tools, file_tool(platforms)))


def file_tool(platforms: Sequence[Platform]) -> Tool:
    """Return the tool that sends a file to the agent's chat."""
    known = {platform.name: platform for platform in platforms}

    @tool(machine="read")
    async def send_file(path: str) -> str:
        """Send a file of the workspace to the chat.

        Args:
            path: the file, relative to the workspace.
        """
        context = session_strings()
        address = address_of(context)
        if address.platform not in known:
            await trio.lowlevel.checkpoint()
            raise ToolError("this session is in no chat that takes files")
        platform = known[address.platform]
        workspace = current_workspace()
        name, content = await trio.to_thread.run_sync(
            _read, workspace, path, platform.largest_upload
        )
        send = partial(
            platform.send_file,
            address,
            name,
            content,
            key=secrets.token_hex(8),
            anchor=context.get("message_id", ""),
        )
        try:
            try:
                sent = await send()
            except RetryAfterError as exc:
                await trio.sleep(exc.seconds)
                sent = await send()
        except ChatError as exc:
            raise ToolError(f"{path} was not sent: {error_text(exc)}") from exc
        return f"{name} was sent, {len(content)} bytes, as message {sent.id}"

    return send_file


def _read(workspace: Workspace, path: str, most: int) -> tuple[str, bytes]:
    with workspace.find(path) as entry, entry.open_file() as (descriptor, found):
        if found.st_size > most:
            raise ToolError(f"{path} has {found.st_size} bytes, and the chat takes {most}")
        with open(os.dup(descriptor), "rb") as file:  # noqa: PTH123 (a descriptor)
            content = file.read(most + 1)
    if not content or len(content) > most:
        raise ToolError(f"{path} is empty, or larger than the chat takes")
    return harmless_name(entry.name), content
