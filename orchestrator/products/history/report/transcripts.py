"""The packed transcripts of a report: limited in size, with a sentence about the transcripts left
out.

Texts of models and tools are data: the page shows them as text.
"""

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from orchestrator.agents import AssistantMessage, Message, Part, ToolCall, ToolMessage, UserMessage
from orchestrator.agents.tools.evidence import MOST
from orchestrator.delegation import Ending, Status, TaskId
from orchestrator.ports.journals import RunHistory, TaskTranscript
from orchestrator.products.history.report.packed_tree import pack

MESSAGE_CHARACTERS: Final = 20_000
"""The characters of a message that the report keeps."""
REPORT_CHARACTERS: Final = 10_000_000
"""The most characters of all transcripts of a report."""
AUTO_BYTES: Final = 4_000_000
"""The most bytes of all transcripts under `Transcripts.AUTO`: with its tree and its viewer, the
report stays below 5 MB and fits into a mail.
"""
PACKET_CHARACTERS: Final = 200_000
"""The size of a full packet: the page unpacks one whole packet to show one task."""
NOT_SUCCEEDED: Final[frozenset[str]] = frozenset(Ending) - {
    Ending.SUCCEEDED,
    # A refused task has no transcript.
    Ending.REFUSED,
} | {Status.INTERRUPTED}


class Transcripts(enum.StrEnum):
    """The choice of transcripts in a report."""

    NONE = "none"
    AUTO = "auto"
    """As many transcripts as fit into a small file, starting with tasks that did not succeed."""
    FAILED = "failed"
    """Only transcripts of tasks that did not succeed."""
    ALL = "all"

    def wants(self, status: str) -> bool:
        if self is Transcripts.FAILED:
            return status in NOT_SUCCEEDED
        return self is not Transcripts.NONE


@attrs.frozen(kw_only=True)
class PackedTranscripts:
    """The transcripts of a report."""

    packets: Sequence[str]
    index: Mapping[TaskId, int]
    """The packet of each task."""
    left_out: int
    """The number of tasks that were left out because the report was full."""
    kind: Transcripts

    @property
    def sentence(self) -> str:
        """A sentence for people about the transcripts in the report."""
        if self.kind is Transcripts.NONE:
            return "No transcripts are in this file: it was written with --transcripts none."
        is_failed = self.kind is Transcripts.FAILED
        whose = "tasks that did not succeed" if is_failed else "all tasks"
        full = ""
        if self.left_out:
            full = f" {self.left_out:,} more are left out: the file is full."
            if self.kind is Transcripts.AUTO:
                full += " --transcripts all has more room."
        return (
            f"Transcripts of {whose}: {len(self.index):,} are in this file. It keeps"
            f" {MESSAGE_CHARACTERS:,} characters of a message and {REPORT_CHARACTERS:,} of all of"
            f" them.{full}"
        )


def pack_transcripts(history: RunHistory, kind: Transcripts) -> PackedTranscripts:
    """Pack the transcripts of a run, starting with tasks that did not succeed."""
    packets: list[str] = []
    index: dict[TaskId, int] = {}
    packet: dict[TaskId, list[dict[str, Any]]] = {}
    size = left_out = 0
    left = REPORT_CHARACTERS
    left_bytes = AUTO_BYTES if kind is Transcripts.AUTO else math.inf

    def close() -> None:
        nonlocal size, left, left_bytes, left_out
        packed = pack(packet)
        if len(packed) > left_bytes:
            left_out += len(packet)
            left = 0
        else:
            index.update(dict.fromkeys(packet, len(packets)))
            packets.append(packed)
            left_bytes -= len(packed)
        packet.clear()
        size = 0

    for task, transcript in _in_order(history):
        messages = [*_messages(transcript)] if left else []
        length = sum(map(_length, messages))
        if not messages or length > left:
            left_out += 1
            continue
        left -= length
        size += length
        packet[task] = messages
        if size >= PACKET_CHARACTERS:
            close()
    if packet:
        close()
    return PackedTranscripts(packets=packets, index=index, left_out=left_out, kind=kind)


def _length(message: Mapping[str, Any]) -> int:
    calls = message.get("calls")
    said = len(message["text"]) + len(message.get("reasoning", ""))
    return said + (len(msgspec.json.encode(calls)) if calls else 0)


def _in_order(history: RunHistory) -> Iterator[tuple[TaskId, TaskTranscript]]:
    for first in (True, False):
        for task in history.tree:
            is_first = history.tree[task].status in NOT_SUCCEEDED
            transcript = history.transcripts.get(task)
            if is_first is first and transcript is not None and transcript.messages:
                yield task, transcript


def _messages(transcript: TaskTranscript) -> Iterator[dict[str, Any]]:
    """Yield messages in the form of `GET /v1/tasks/{id}/transcript`, for the shared viewer."""
    for message in transcript.messages:
        yield _message(message)
    outcome = transcript.outcome
    evidence = None if outcome is None else outcome.evidence
    if outcome is not None and (outcome.error or outcome.note or evidence is not None):
        facts = [] if evidence is None else evidence.lines(MOST)
        about = (outcome.error, outcome.traceback, outcome.note, *facts)
        text = "\n".join(filter(None, about))
        yield _cut(text, role="end", who=f"ended: {outcome.ending}", failed=not outcome.succeeded)


def _message(message: Message) -> dict[str, Any]:
    match message:
        case UserMessage():
            return _cut(
                message.text,
                role="user",
                id=message.id,
                aside=message.aside,
                parts=_attachments(message.parts),
            )
        case AssistantMessage():
            thoughts = "\n\n".join(it.text for it in message.reasoning if it.text)
            return _cut(
                message.text,
                role="assistant",
                model=message.model,
                incomplete=message.incomplete,
                reasoning=thoughts[:MESSAGE_CHARACTERS],
                usage=msgspec.to_builtins(message.usage) if message.usage.calls else None,
                calls=[
                    {"id": it.id, "name": it.name, "arguments": _arguments(it)}
                    for it in message.calls
                ],
            )
        case ToolMessage():
            return _cut(
                message.text,
                role="tool",
                call=message.call,
                failed=message.failed,
                parts=_attachments(message.parts),
            )


def _attachments(parts: Iterable[Part]) -> list[dict[str, Any]]:
    return [{"media_type": it.media_type, "name": it.name, "bytes": len(it.data)} for it in parts]


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    text = msgspec.json.encode(call.arguments).decode()
    if len(text) <= MESSAGE_CHARACTERS:
        return call.arguments
    return {"the beginning of them": text[:MESSAGE_CHARACTERS]}


def _cut(text: str, **more: Any) -> dict[str, Any]:
    """Return a message with the beginning of a text, and the other fields that are not empty."""
    message = {
        "text": text[:MESSAGE_CHARACTERS],
        **{name: value for name, value in more.items() if value},
    }
    if len(text) > MESSAGE_CHARACTERS:
        message["left"] = len(text) - MESSAGE_CHARACTERS
    return message
