"""The bytes of an image or a file that came with a message.

They come from a model, a tool or a person. So a browser may show only kinds of images that cannot
hold a program, and saves everything else.
"""

from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from orchestrator.agents import AssistantMessage, MessageId, Part, UserMessage
from orchestrator.delegation import SessionId
from orchestrator.ports.reads import FoundTask
from orchestrator.products.server.api.lookup import read_task
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.operation import Answer, Operation
from orchestrator.products.server.transport.errors import not_found

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The media types that a browser may show. An SVG may hold a program, so it is saved."""
ANYTHING: Final = "application/octet-stream"
HEADERS: Final = {
    # A browser that opens the address gets a document without rights.
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}


@Operation(
    "GET",
    "/v1/tasks/{task}/messages/{message}/parts/{part}",
    Scope.READ,
    Answer("An image to show; any other file to save", media_types=(*sorted(IMAGES), ANYTHING)),
)
async def get_part(call: ApiCall) -> Response:
    """Return the bytes of an image or a file of a message."""
    found = await read_task(call, call.path("task"))
    message, number = MessageId(call.path("message")), call.path("part")
    parts = await _parts_of(call, found, message)
    return part_response(parts, message, number, found.session.id)


def part_response(
    parts: tuple[Part, ...], message: MessageId, number: str, run: SessionId
) -> Response:
    """Respond with the bytes of one part of a message."""
    # Not `int`: it also reads signs, blanks and the digits of all scripts.
    place = {str(at): part for at, part in enumerate(parts, 1)}
    part = place.get(number)
    if part is None or not part.data:
        raise not_found(f"message {message!r} has no part {number!r} with bytes")
    is_shown = part.media_type in IMAGES
    return Response(
        part.data,
        media_type=part.media_type if is_shown else ANYTHING,
        headers={
            **HEADERS,
            "content-disposition": _disposition(part, is_shown=is_shown),
            "x-run-id": run,
        },
    )


async def _parts_of(call: ApiCall, found: FoundTask, id_: MessageId) -> tuple[Part, ...]:
    """Return the parts of a message of a task, read by a turn or not yet."""
    read = call.journal.read
    for message in await read.transcript(found.task.id):
        if message.id == id_ and not isinstance(message, AssistantMessage):
            return message.parts
    session = read.records.sessions.get(SessionId(found.task.id))
    for mail in () if session is None else session.mail.values():
        if isinstance(mail, UserMessage) and mail.id == id_:
            return mail.parts
    return ()


def _disposition(part: Part, *, is_shown: bool) -> str:
    kind = "inline" if is_shown else "attachment"
    name = part.name.replace("\\", "/").rpartition("/")[2]
    # Percent-encoded: no name can end the header or begin another one.
    return f"{kind}; filename*=UTF-8''{quote(name, safe='')}" if name else kind
