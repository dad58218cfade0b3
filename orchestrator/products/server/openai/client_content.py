"""The texts, images and files of clients; an invalid file raises a `DefinitionError`."""

import base64
import mimetypes
import re
from typing import Final
from urllib.parse import urlsplit

import msgspec

from orchestrator.agents import DefinitionError, Part

IMAGE_TYPES: Final = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
DEFAULT_IMAGE_TYPE: Final = "image/jpeg"
"""The type of an image whose URL does not tell; the provider that fetches it finds out."""
DEFAULT_FILE_TYPE: Final = "application/pdf"
_DATA_URL: Final = re.compile(r"data:([^;,]+)((?:;[^;,]+)*),(.*)", re.DOTALL)


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    """A text in a message, in chats and in Anthropic's protocol."""

    text: str


class Refusal(msgspec.Struct, tag_field="type", tag="refusal"):
    """A refusal of a model, sent back as part of the conversation."""

    refusal: str


def image_from_url(url: str) -> Part:
    """Return the image in a data: URL, or a link to an image."""
    if not url.startswith("data:"):
        kind = _media_type_at(url)
        return Part(kind if kind in IMAGE_TYPES else DEFAULT_IMAGE_TYPE, url=url)
    part = _part_from_data_url(url)
    if not part.is_image:
        raise DefinitionError(f"{part.media_type} is not an image")
    return part


def file_from_data(data: str, *, name: str) -> Part:
    """Return the file in a data: URL or in base64."""
    if data.startswith("data:"):
        return _part_from_data_url(data, name=name)
    kind, _ = mimetypes.guess_type(name)
    if kind is None:
        raise DefinitionError(
            "neither file_data nor filename tells the media type: send a data: URL, such as"
            " data:application/pdf;base64,..."
        )
    return Part(kind, data=_decoded(data), name=name)


def file_from_url(url: str, *, name: str) -> Part:
    """Return a link to a file."""
    kind = mimetypes.guess_type(name)[0] or _media_type_at(url) or DEFAULT_FILE_TYPE
    return Part(kind, url=url, name=name)


def _media_type_at(url: str) -> str | None:
    try:
        path = urlsplit(url).path
    except ValueError as exc:
        raise DefinitionError(f"{url!r} is not a URL: {exc}") from exc
    return mimetypes.guess_type(path.rpartition("/")[2])[0]


def _part_from_data_url(url: str, *, name: str = "") -> Part:
    found = _DATA_URL.fullmatch(url)
    if found is None or not found[2].endswith(";base64"):
        raise DefinitionError("a data: URL must have the form data:image/png;base64,...")
    return Part(found[1].lower(), data=_decoded(found[3]), name=name)


def _decoded(text: str) -> bytes:
    # The provider checks the content against its type.
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise DefinitionError(f"its data is not base64: {exc}") from exc
