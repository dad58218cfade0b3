"""Records requests and answers of a model in a file, and replays them: no network, no key.

A cassette has one exchange a line, found by its request. Both sides are redacted before they are
compared or written, so the file can be committed. Of images and files only a fingerprint is stored:
a secret in them could not be found.
"""

import difflib
import hashlib
import os
import textwrap
from collections import deque
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec
import trio

from orchestrator.agents.errors import Failure, ModelError
from orchestrator.agents.messages import UNCOMPARED_FIELDS, AssistantMessage, Message, Usage
from orchestrator.agents.models.model import Model, ModelRequest, TextDelta
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.agents.redaction.redactor import redacted_tree

# Fields of a message that are not part of a request.
OMITTED_FIELDS: Final = frozenset({"id", "model", "usage"})
MAX_DIFF_LINES: Final = 40


class CassetteError(ModelError):
    """A cassette cannot be read or written, or lacks the request."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(f"cassette {file}: {problem}", kind=Failure.BAD_REQUEST)
        self.file = file


class RecordingModel(ModelWrapper):
    """Calls a model, and appends every exchange to a cassette, without `known` secrets."""

    def __init__(self, model: Model, file: Path, *, known: Collection[str] = ()) -> None:
        super().__init__(model)
        self._file = file
        self._known = known
        self._write_lock = trio.Lock()

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Copied now: a transcript may grow during the call.
        fields = _request_fields(request)
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            error = exc
        else:
            await self._write({"request": fields, "answer": _content(answer)})
            return answer
        await self._write({"request": fields, "error": _RecordedError.from_error(error)})
        raise error

    async def _write(self, exchange: dict[str, Any]) -> None:
        line = msgspec.json.encode(_redacted(exchange, self._known))
        line = msgspec.json.format(line, indent=0)
        async with self._write_lock:
            await trio.to_thread.run_sync(_append, self._file, line)


class ReplayModel:
    """Answers from a cassette; a repeated request gets the next recorded answer to it."""

    def __init__(self, file: Path, *, known: Collection[str] = ()) -> None:
        self.name = f"replay:{file.name}"
        self._file = file
        self._known = known
        self._read_lock = trio.Lock()
        self._exchanges: dict[bytes, deque[_Outcome]] | None = None

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        exchanges = await self._read()
        key = _key(_redacted(_request_fields(request), self._known))
        if key not in exchanges:
            raise CassetteError(self._file, _unknown(key, exchanges))
        if not exchanges[key]:
            problem = "every answer to this request has been given; record more"
            raise CassetteError(self._file, problem)
        match exchanges[key].popleft():
            case AssistantMessage() as answer:
                _emit_text(request, answer.text)
                return answer
            case failed:
                _emit_text(request, failed.partial)
                raise failed.as_error()

    async def _read(self) -> dict[bytes, deque["_Outcome"]]:
        async with self._read_lock:
            if self._exchanges is None:
                self._exchanges = await trio.to_thread.run_sync(_read, self._file)
            return self._exchanges


class _RecordedError(msgspec.Struct, omit_defaults=True):
    message: str
    kind: Failure
    retry_after: float | None
    partial: str
    usage: Usage | None = None

    @classmethod
    def from_error(cls, error: ModelError) -> "_RecordedError":
        return cls(str(error), error.kind, error.retry_after, error.partial, error.usage)

    def as_error(self) -> ModelError:
        return ModelError(
            self.message,
            kind=self.kind,
            retry_after=self.retry_after,
            partial=self.partial,
            usage=self.usage,
        )


class _Exchange(msgspec.Struct):
    """A line of a cassette: a request, and an answer or an error."""

    request: dict[str, Any]
    answer: AssistantMessage | None = None
    error: _RecordedError | None = None


_Outcome: TypeAlias = AssistantMessage | _RecordedError


def _emit_text(request: ModelRequest, text: str) -> None:
    if text:
        request.tell(TextDelta(text))


def _request_fields(request: ModelRequest) -> dict[str, Any]:
    return {
        "instructions": request.instructions,
        "transcript": [_message_fields(message) for message in request.transcript],
        "tools": {tool.name: tool.parameters for tool in request.tools},
        "output": request.output,
        # Only if they are set: most requests do not have them.
        **({} if request.max_output is None else {"max_output": request.max_output}),
        **({"settings": settings} if (settings := request.settings.as_fields()) else {}),
    }


def _message_fields(message: Message) -> dict[str, Any]:
    sender = type(message).__name__.removesuffix("Message").lower()
    return {"from": sender} | {
        name: value for name, value in _content(message).items() if name not in OMITTED_FIELDS
    }


def _content(message: Message) -> dict[str, object]:
    # The id of a message is not part of its content, and a replayed message gets a new one.
    fields = _set_fields(message).items()
    return {name: value for name, value in fields if name not in UNCOMPARED_FIELDS}


def _set_fields(value: msgspec.Struct) -> dict[str, object]:
    """Return the fields that differ from their defaults."""
    names, defaults = value.__struct_fields__, value.__struct_defaults__
    without_default = len(names) - len(defaults)
    return {
        name: _plain(getattr(value, name))
        for index, name in enumerate(names)
        if index < without_default or getattr(value, name) != defaults[index - without_default]
    }


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            return _set_fields(value)
        case tuple():
            return [*map(_plain, cast("tuple[object, ...]", value))]
        case bytes():
            return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()}"
        case _:
            return value


def _redacted(exchange: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    # Converted to plain JSON first, so that the compared form is the written one.
    redacted: dict[str, Any] = redacted_tree(msgspec.to_builtins(exchange), known)
    return redacted


def _key(request: dict[str, Any]) -> bytes:
    return msgspec.json.encode(request, order="sorted")


def _append(file: Path, line: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as cassette:
            os.fchmod(descriptor, 0o600)
            cassette.write(line + b"\n")
            cassette.flush()
            os.fsync(descriptor)
    except OSError as exc:
        raise CassetteError(file, f"it cannot be written: {exc}") from exc


def _read(file: Path) -> dict[bytes, deque[_Outcome]]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError as exc:
        raise CassetteError(file, f"it cannot be read: {exc}") from exc
    exchanges: dict[bytes, deque[_Outcome]] = {}
    for number, line in enumerate(lines, 1):
        try:
            exchange = msgspec.json.decode(line, type=_Exchange)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise CassetteError(file, f"line {number} is not an exchange: {exc}") from exc
        if (outcome := exchange.answer or exchange.error) is None:
            raise CassetteError(file, f"line {number} has no answer and no error")
        exchanges.setdefault(_key(exchange.request), deque()).append(outcome)
    return exchanges


def _unknown(request: bytes, recorded: Iterable[bytes]) -> str:
    """Describe how a request differs from the most similar recorded one."""
    now = _readable(request)
    matcher = difflib.SequenceMatcher(b=now, autojunk=False)

    def likeness(lines: list[str]) -> float:
        matcher.set_seq1(lines)
        return matcher.quick_ratio()

    nearest = max(map(_readable, recorded), key=likeness, default=None)
    if nearest is None:
        return "it is empty"
    lines = [*difflib.unified_diff(nearest, now, "recorded", "asked", lineterm="", n=1)]
    if (more := len(lines) - MAX_DIFF_LINES) > 0:
        lines[MAX_DIFF_LINES:] = [f"... and {more} lines more"]
    sentence = "this request was not recorded; record it anew"
    return "\n".join([sentence, *lines])


def _readable(request: bytes) -> list[str]:
    pretty = msgspec.json.format(request, indent=2).decode()
    # New lines are unescaped, so that a changed line of a text is a line of the diff.
    lines = pretty.replace(r"\n", "\n").splitlines()
    return [part for line in lines for part in textwrap.wrap(line, 100) or [""]]
