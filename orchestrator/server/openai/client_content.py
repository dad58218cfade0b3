"""What clients of OpenAI's protocols send along: images and files, functions, and calls of them.

What is wrong with it is said as a `DefinitionError`; whoever reads the request knows where it
stands.
"""

import base64
import mimetypes
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import trio

from agents import Agent, CallId, DefinitionError, Part, Tool, ToolCall, ToolError
from orchestrator.replay.record import DELEGATION_TOOLS

NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
PICTURES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
USUAL_PICTURE: Final = "image/jpeg"
"""Of an address that does not say which: whoever fetches it sees for themselves."""
USUAL_FILE: Final = "application/pdf"
_DATA_URL: Final = re.compile(r"data:([^;,]+)((?:;[^;,]+)*),(.*)", re.DOTALL)


def image_from_url(url: str) -> Part:
    """Return the image that a URL carries, or leads to."""
    if not url.startswith("data:"):
        kind = _kind_at(url)
        return Part(kind if kind in PICTURES else USUAL_PICTURE, url=url)
    part = _part_from_data_url(url)
    if not part.is_image:
        raise DefinitionError(f"{part.media_type} is no image")
    return part


def file_from_data(data: str, *, name: str) -> Part:
    """Return the file that a data: URL carries, or that is written in base64."""
    if data.startswith("data:"):
        return _part_from_data_url(data, name=name)
    kind, _ = mimetypes.guess_type(name)
    if kind is None:
        raise DefinitionError(
            "file_data does not say of what kind it is, and neither does filename: send a"
            " data: URL, such as data:application/pdf;base64,..."
        )
    return Part(kind, data=_decoded(data), name=name)


def file_from_url(url: str, *, name: str) -> Part:
    """Return the file that a URL leads to."""
    kind = mimetypes.guess_type(name)[0] or _kind_at(url) or USUAL_FILE
    return Part(kind, url=url, name=name)


def _kind_at(url: str) -> str | None:
    try:
        path = urlsplit(url).path
    except ValueError as exc:
        raise DefinitionError(f"{url!r} is no address: {exc}") from exc
    return mimetypes.guess_type(path.rpartition("/")[2])[0]


def _part_from_data_url(url: str, *, name: str = "") -> Part:
    """Return what a data: URL carries."""
    found = _DATA_URL.fullmatch(url)
    if found is None or not found[2].endswith(";base64"):
        raise DefinitionError("a data: URL is written data:image/png;base64,...")
    return Part(found[1].lower(), data=_decoded(found[3]), name=name)


def _decoded(text: str) -> bytes:
    # No check of what it is: whoever reads it, looks.
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise DefinitionError(f"its data is no base64: {exc}") from exc


def reserved_tool_names(agent: Agent[Any]) -> set[str]:
    """Return how no function of a client can be called."""
    return {*DELEGATION_TOOLS, *(tool.name for tool in agent.tools)}


def client_tool(
    name: str, description: str | None, parameters: Mapping[str, Any] | None
) -> Tool:
    """Return a function that the client runs itself, as a tool of the agent."""
    return Tool(
        name=name,
        description=description or "",
        parameters=parameters or NO_ARGUMENTS,
        run=_never_run,
        runs_at_caller=True,
    )


async def _never_run(call: ToolCall) -> str:
    # A crash may leave a call open, and then somebody here is asked for its answer.
    await trio.lowlevel.checkpoint()
    raise ToolError(f"{call.name} is run by whoever asked, and they are gone")


def call_of(name: str, arguments: str, *, id_: str) -> ToolCall:
    """Return a call that was made before."""
    try:
        given = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise DefinitionError(
            f"the arguments of a call are the text of a JSON object: {exc}"
        ) from exc
    return ToolCall(name, given, id=CallId(id_))
