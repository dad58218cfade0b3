"""Reads the frames of an AWS event stream, as they arrive in pieces of any size.

A frame is its length, the length of its headers and a checksum of both; headers; a payload; and a
checksum of all. A frame that does not add up is malformed.
"""

import binascii
import struct
from base64 import b64decode
from collections.abc import Iterator
from typing import Final

import msgspec

from orchestrator.agents.errors import Failure
from orchestrator.agents.models.http.answer_errors import UnusableAnswerError
from orchestrator.agents.models.http.provider_errors import stream_error

PRELUDE: Final = struct.Struct(">III")
CHECKSUM: Final = struct.Struct(">I")
TEXT_HEADER: Final = 7
SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""How long the value of a header is, by its type; texts and bytes say their length."""
LONGEST_FRAME: Final = 24 * 2**20


class _Chunk(msgspec.Struct):
    bytes: str


class AwsFrames:
    """A parser of one stream, with the interface of `SseParser`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.lines = 0

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the events that are complete with this piece."""
        self._buffer += chunk
        while len(self._buffer) >= PRELUDE.size:
            length, headers_length, checksum = PRELUDE.unpack_from(self._buffer)
            if (
                checksum != binascii.crc32(self._buffer[:8])
                or not 16 + headers_length <= length <= LONGEST_FRAME
            ):
                raise _malformed()
            if len(self._buffer) < length:
                return
            frame = bytes(self._buffer[:length])
            del self._buffer[:length]
            (whole,) = CHECKSUM.unpack_from(frame, length - 4)
            if whole != binascii.crc32(frame[:-4]):
                raise _malformed()
            headers_end = PRELUDE.size + headers_length
            yield _event(_headers(frame[PRELUDE.size : headers_end]), frame[headers_end:-4])


def _event(headers: dict[str, str], payload: bytes) -> bytes:
    if headers.get(":message-type", "event") != "event":
        kind = headers.get(":exception-type") or headers.get(":error-code", "")
        text = payload.decode(errors="replace") or headers.get(":error-message", "")
        raise stream_error(msgspec.json.encode({"type": kind, "message": text}))
    try:
        return b64decode(msgspec.json.decode(payload, type=_Chunk).bytes, validate=True)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise _malformed() from exc


def _headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name = data[at + 1 : name_end].decode()
            kind = data[name_end]
            at = name_end + 1
            if kind in SIZES:
                at += SIZES[kind]
                continue
            size = int.from_bytes(data[at : at + 2])
            value = data[at + 2 : at + 2 + size]
            at += 2 + size
            if kind == TEXT_HEADER:
                headers[name] = value.decode()
    except (IndexError, UnicodeDecodeError) as exc:
        raise _malformed() from exc
    return headers


def _malformed() -> UnusableAnswerError:
    return UnusableAnswerError(Failure.MALFORMED, "gave a stream with a damaged frame")
