"""The events of a response, numbered: the same for every client, and after a restart.

The number of an event depends on the text before it, and on nothing else. An item with
a text of n characters that starts at s (a call: with such arguments) is

    added         s            text done     s + 2 + n
    part added    s + 1        part done     s + 3 + n
    character c   s + 1 + c    item done     s + 4 + n

and the next one starts at s + 5 + n, the first at 2, behind `response.created` and
`response.in_progress`; the end of the response is where the next item would start.

So a client that comes back with its last number goes on behind that very character. A model that is
called again may answer differently; then numbers go on, and the text of the `done` event is right.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.delegation import SessionRecord
from orchestrator.products.server.live.agent_stream import AgentText, FullText, PartialText
from orchestrator.products.server.live.progress import open_updates
from orchestrator.products.server.openai.client_content import Refusal
from orchestrator.products.server.openai.logprobs import Logprob, logprobs_of
from orchestrator.products.server.openai.responses import bodies
from orchestrator.products.server.openai.responses.response import (
    BLANK_LINE,
    body_of,
    initial_body,
    item_id,
    output_of,
)
from orchestrator.products.server.served_journal import ServedJournal
from orchestrator.products.server.session_status import AgentMessage
from orchestrator.products.server.transport.errors import HttpError
from orchestrator.products.server.transport.sse import EventWriter

FIRST: Final = 2
"""The number of the first item: two events come before it."""
FROM_THE_BEGINNING: Final = -1
IN_PROGRESS: Final = "response.in_progress"
NOTHING: Final[Mapping[str, Any]] = {}


class ResponseEvents:
    """The events of a response for one client."""

    def __init__(
        self, suffix: str, after: int = FROM_THE_BEGINNING, *, is_json: bool = False
    ) -> None:
        """Begin after the event `after`; with `is_json`, clients parse the text of each item."""
        self._is_json = is_json
        self._suffix = suffix
        self._after = after
        self._last = after
        """The number of the last event."""
        self._events: list[tuple[str, bytes]] = []
        self._item = 0
        """The number of the present item."""
        self._start = FIRST
        self._is_open = False
        self._texts: list[str] = []
        """The text of the present item that was sent."""
        self._length = 0
        """The length of that text."""
        self._full: AgentMessage | None = None
        """The message of the present item, once it is durable."""
        self._is_reasoning = False
        """Whether the present item is reasoning."""
        self._begun: bodies.ResponseBody | None = None
        """The response at its beginning."""

    def take(self) -> list[tuple[str, bytes]]:
        """Return the names and data of the events that are due."""
        events, self._events = self._events, []
        return events

    def begin(self, response: bodies.ResponseBody) -> None:
        self._append(0, "response.created", response=response)
        self._append(1, IN_PROGRESS, response=response)
        self._begun = response

    def add(self, update: AgentText) -> None:
        """Add a text of the agent."""
        match update:
            case PartialText():
                self._add_partial(update)
            case FullText():
                self._add_full(update)

    def _add_partial(self, partial: PartialText) -> None:
        """Add a piece of the agent's text."""
        self._go_to(partial.item, is_reasoning=partial.is_reasoning)
        known = self._length - partial.offset
        self._add(partial.text[max(0, known) :])

    def _add_full(self, full: FullText) -> None:
        """Add the rest of a message that is now durable."""
        self._go_to(full.item, is_reasoning=full.message.is_reasoning)
        self._full = full.message
        self._add(self._full.text[self._length :])

    def add_progress(self, text: str) -> None:
        """Add progress of tasks, as an event that clients ignore, without a number of its own."""
        data = {
            "type": IN_PROGRESS,
            "sequence_number": self._last,
            "response": self._begun,
            "progress": text,
        }
        self._events.append((IN_PROGRESS, msgspec.json.encode(data)))

    def end(self, response: bodies.ResponseBody, items: Sequence[bodies.OutputItem]) -> None:
        """Add all events that were not sent, and the end; `items` include repaired answers."""
        for number, item in enumerate(items):
            if number >= self._item:
                self._finish(number, item)
        if self._is_open:
            # The model was called again and wrote no text: the journal has no such message.
            partial = self._present("".join(self._texts), "incomplete")
            self._close(partial)
            response.output.append(partial)
        ending = response.status
        if ending not in {"completed", "incomplete"}:
            ending = "failed"
        name = f"response.{ending}"
        # Every stream has an end, even for a client that claims more events than there are.
        self._after = FROM_THE_BEGINNING
        self._append(self._start, name, response=response)

    def error_event(self, error: HttpError) -> bytes:
        """Return the event that ends a stream before the end of its response."""
        return msgspec.json.encode(
            {
                "type": "error",
                # The last number again: a client that comes back with it misses no event.
                "sequence_number": self._last,
                "code": error.problem.code,
                "message": error.problem.message,
                "param": None,
            }
        )

    def _go_to(self, item: int, *, is_reasoning: bool) -> None:
        """Finish the items before this one, and open it."""
        while self._item < item:
            text = "".join(self._texts) if self._full is None else self._full.text
            is_broken_off = self._full is not None and self._full.incomplete
            status: bodies.Progress = "incomplete" if is_broken_off else "completed"
            blank = "" if self._is_reasoning else BLANK_LINE
            self._finish(self._item, self._present(f"{text}{blank}", status))
        if not self._is_open:
            self._open(is_reasoning=is_reasoning)

    def _present(
        self, text: str, status: bodies.Progress
    ) -> bodies.MessageItem | bodies.ReasoningItem:
        if not self._is_reasoning:
            return self._message(text, status)
        return bodies.ReasoningItem(
            id=item_id(self._suffix, self._item, "rs"),
            summary=[bodies.SummaryText(text)],
            status=status,
        )

    def _message(self, text: str, status: bodies.Progress) -> bodies.MessageItem:
        return bodies.MessageItem(
            id=item_id(self._suffix, self._item),
            content=[bodies.OutputText(text, logprobs=self._logprobs())],
            status=status,
            phase=None if status == "in_progress" else "commentary",
        )

    def _finish(self, number: int, item: bodies.OutputItem) -> None:
        assert number == self._item, "items come in order"
        match item:
            case bodies.CallItem():
                begun: bodies.OutputItem = replace(item, arguments="", status="in_progress")
                whole = {"name": item.name, "arguments": item.arguments}
                event = "response.function_call_arguments"
                self._append_whole(item, begun, item.arguments, event, whole)
            case bodies.CustomCallItem():
                begun = replace(item, input="", status="in_progress")
                event = "response.custom_tool_call_input"
                self._append_whole(item, begun, item.input, event, {"input": item.input})
            case bodies.ReasoningItem(summary=[]):
                # The reasoning is not shown.
                begun = replace(item, encrypted_content=None, status="in_progress")
                self._append_whole(item, begun)
            case bodies.MessageItem(content=[Refusal() as said]):
                begun = replace(item, content=[], status="in_progress")
                whole = {"refusal": said.refusal}
                event = "response.refusal"
                self._append_whole(item, begun, said.refusal, event, whole, part=said)
            case bodies.MessageItem() | bodies.ReasoningItem():
                if not self._is_open:
                    self._open(is_reasoning=isinstance(item, bodies.ReasoningItem))
                self._add(_part_of(item).text[self._length :])
                self._close(item)

    def _open(self, *, is_reasoning: bool) -> None:
        self._is_open = True
        self._is_reasoning = is_reasoning
        self._texts, self._length = [], 0
        self._full = None
        item = self._present("", "in_progress")
        begun: bodies.OutputItem = (
            replace(item, summary=[])
            if isinstance(item, bodies.ReasoningItem)
            else replace(item, content=[])
        )
        self._append(self._start, "response.output_item.added", output_index=self._item, item=begun)
        self._append(
            self._start + 1, self._event("part.added"), **self._place(item.id), part=_part_of(item)
        )

    def _event(self, kind: str) -> str:
        """Return the name of an event of the present item."""
        if self._is_reasoning:
            return f"response.reasoning_summary_{kind}"
        return f"response.output_{kind}" if kind.startswith("text") else f"response.content_{kind}"

    def _add(self, text: str) -> None:
        """Add the part of a text that the client does not have to the present item."""
        before = self._length
        self._texts.append(text)
        self._length += len(text)
        known = max(before, self._after - self._start - 1)
        if known < self._length:
            kind = "rs" if self._is_reasoning else "msg"
            self._append(
                self._start + 1 + self._length,
                self._event("text.delta"),
                **self._place(item_id(self._suffix, self._item, kind)),
                delta=text[known - before :],
                # They come when the text is done: only then is it certain that it has no secret.
                **({} if self._is_reasoning else {"logprobs": []}),
            )

    def _logprobs(self) -> list[Logprob]:
        return [] if self._full is None else logprobs_of(self._full.logprobs)

    def _close(self, item: bodies.MessageItem | bodies.ReasoningItem) -> None:
        content = _part_of(item)
        end = self._start + 2 + len(content.text)
        place = self._place(item.id)
        # Clients could not parse an answer that does not fit its schema and is repaired.
        is_commentary = isinstance(item, bodies.MessageItem) and item.phase == "commentary"
        if not (self._is_json and is_commentary):
            self._append(
                end,
                self._event("text.done"),
                **place,
                text=content.text,
                **(
                    {"logprobs": content.logprobs} if isinstance(content, bodies.OutputText) else {}
                ),
            )
            self._append(end + 1, self._event("part.done"), **place, part=content)
        self._is_open = False
        self._end_item(end + 2, item)

    def _append_whole(
        self,
        item: bodies.OutputItem,
        begun: bodies.OutputItem,
        text: str = "",
        event: str = "",
        whole: Mapping[str, Any] = NOTHING,
        *,
        part: Refusal | None = None,
    ) -> None:
        """Add the events of an item that is complete at once; `begun` has no text yet."""
        start, end = self._start, self._start + 1 + len(text)
        self._append(start, "response.output_item.added", output_index=self._item, item=begun)
        place: dict[str, Any] = {"item_id": item.id, "output_index": self._item}
        if part is not None:
            place["content_index"] = 0
            self._append(start + 1, "response.content_part.added", **place, part=Refusal(""))
        if event:
            known = max(0, self._after - start - 1)
            self._append(end, f"{event}.delta", **place, delta=text[known:])
            self._append(end + 1, f"{event}.done", **place, **whole)
        if part is not None:
            self._append(end + 2, "response.content_part.done", **place, part=part)
        self._end_item(end + 3, item)

    def _end_item(self, number: int, item: bodies.OutputItem) -> None:
        self._append(number, "response.output_item.done", output_index=self._item, item=item)
        self._item += 1
        self._start = number + 1

    def _place(self, item: str) -> dict[str, Any]:
        part = "summary_index" if item.startswith("rs_") else "content_index"
        return {"item_id": item, "output_index": self._item, part: 0}

    def _append(self, number: int, event: str, /, **fields: Any) -> None:
        if number <= self._after:
            return  # the client has it
        self._last = max(number, self._last + 1)
        data = {"type": event, "sequence_number": self._last, **fields}
        self._events.append((event, msgspec.json.encode(data)))


def _part_of(
    item: bodies.MessageItem | bodies.ReasoningItem,
) -> bodies.OutputText | bodies.SummaryText:
    """Return the only part of an item."""
    if isinstance(item, bodies.ReasoningItem):
        return item.summary[0]
    content = item.content[0]
    assert isinstance(content, bodies.OutputText), "it was opened with a text"
    return content


async def send_events(
    journal: ServedJournal,
    session: SessionRecord,
    events: ResponseEvents,
    writer: EventWriter,
    *,
    has_progress: bool = False,
) -> None:
    """Send all events of a response that the client does not have, as they come."""
    events.begin(initial_body(session))
    await _flush(events, writer)
    async with open_updates(journal, session, has_progress=has_progress) as next_update:
        while (update := await next_update()) is not None:
            if not isinstance(update, list):
                events.add(update)
            # Reasoning of the agent is an item of the response, if the client asks for it.
            elif lines := [it.text.strip() for it in update if it.is_fact]:
                events.add_progress("\n".join(lines))
            await _flush(events, writer)
    await wait_settled(journal, session)
    events.end(body_of(session), output_of(session))
    await _flush(events, writer)


async def wait_settled(journal: ServedJournal, session: SessionRecord) -> None:
    """Wait until a response is over, and all its tasks are settled."""
    await journal.door.wait_over(session)
    if session.closed:
        # The request that closed the session waits, too.
        await journal.door.close(session, deleted=session.deleted)


async def _flush(events: ResponseEvents, writer: EventWriter) -> None:
    await trio.lowlevel.checkpoint()
    for name, data in events.take():
        await writer.send_event(data, name=name)
