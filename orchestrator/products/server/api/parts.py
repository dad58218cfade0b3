"""The files of a message in a request."""

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec

from orchestrator.agents import DefinitionError, Part
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.json_body import MOST_PIECES

BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"
MediaType: TypeAlias = Annotated[
    str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*$")
]


class DataPart(msgspec.Struct, kw_only=True, tag="data"):
    """A file whose bytes are in the request."""

    media_type: MediaType
    data: Annotated[str, msgspec.Meta(pattern=BASE64, description="In base64.")]
    name: str = ""

    def part(self) -> Part:
        data = base64.b64decode(self.data, validate=True)
        return Part(self.media_type, data=data, name=self.name)


class LinkPart(msgspec.Struct, kw_only=True, tag="url"):
    """A file that the model's provider fetches."""

    media_type: MediaType
    url: Annotated[str, msgspec.Meta(pattern="^https?://[!-~]+$")]
    name: str = ""

    def part(self) -> Part:
        return Part(self.media_type, url=self.url, name=self.name)


Parts: TypeAlias = Annotated[
    list[DataPart | LinkPart], msgspec.Meta(max_length=MOST_PIECES, description="Images and files.")
]


def parts_of(given: Sequence[DataPart | LinkPart]) -> tuple[Part, ...]:
    """Return the files of a message, or refuse them."""
    try:
        return tuple(it.part() for it in given)
    except (DefinitionError, binascii.Error) as exc:
        raise HttpError(400, str(exc), code="invalid_part", param="parts") from exc
