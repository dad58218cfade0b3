"""Faults to order: models, tools and doors that fail when a test says so."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import attrs
import trio

from agents import (
    AssistantMessage,
    DefinitionError,
    Failure,
    Model,
    ModelError,
    ModelRequest,
    Price,
    Tool,
    ToolCall,
    Usage,
)
from agents.models.http.provider_errors import status_error
from delegation import Reply
from orchestrator.doors.session import Session

Fault: TypeAlias = int | Literal["timeout", "malformed", "garbage"] | Exception | None
"""How a call fails: an HTTP status, one of the words, or an error as it is; None is not at all."""

TIMEOUT_SECONDS: Final = 60.0
GARBAGE: Final = '}{ "this": is no answer'


def faulty(
    model: Model, faults: Iterable[Fault], *, retry_after: float | None = None
) -> Model:
    """Return a model whose first calls meet these faults, one each; later ones go through.

    `429`, `500` and other HTTP statuses fail at once, as the provider's answer would.
    `"timeout"` fails after a minute, `"malformed"` is an answer that is not what the protocol says,
    and `"garbage"` a text that is not what anybody asked for.

    A fault is the end of its task, as it is for any `Model` that is given to an agent. With
    `agents.models.wrappers.retry.retrying(faulty(...))` it is asked again.

    Args:
        model: who answers where there is no fault.
        faults: what the calls meet, in the order in which they come.
        retry_after: what a 429 asks for, in seconds.
    """
    return _FaultyModel(model, list(faults), retry_after)


class _FaultyModel:
    def __init__(
        self, model: Model, faults: list[Fault], retry_after: float | None
    ) -> None:
        self.name = model.name
        self._model = model
        self._faults = faults
        self._retry_after = retry_after
        for fault in faults:
            if isinstance(fault, str) and fault not in {*_NAMED_FAULTS, "garbage"}:
                raise DefinitionError(
                    f"{fault!r} is no fault: give an HTTP status, 'timeout', 'malformed',"
                    " 'garbage', an exception or None"
                )

    @property
    def price(self) -> Price | None:
        return getattr(self._model, "price", None)

    def count_tokens(self, request: ModelRequest) -> int | None:
        count = getattr(self._model, "count_tokens", None)
        return None if count is None else count(request)

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # Taken before the wait, so calls meet faults in the order in which they come.
        fault = self._faults.pop(0) if self._faults else None
        if fault is None:
            return await self._model.answer(request)
        await trio.sleep(TIMEOUT_SECONDS if fault == "timeout" else 0)
        if fault == "garbage":
            return AssistantMessage(GARBAGE, usage=Usage(calls=1), model=self.name)
        raise self._error(fault)

    def _error(self, fault: int | str | Exception) -> Exception:
        if isinstance(fault, Exception):
            return fault
        if isinstance(fault, str):
            kind, what = _NAMED_FAULTS[fault]
            return ModelError(f"{self.name} {what}", kind=kind)
        headers: Mapping[str, str] = {}
        if fault == 429 and self._retry_after is not None:
            headers = {"retry-after": str(self._retry_after)}
        said = status_error(fault, headers, b"a fault to order")
        return ModelError(
            f"{self.name} {said}", kind=said.kind, retry_after=said.retry_after
        )


_NAMED_FAULTS: Final = {
    "timeout": (Failure.TIMEOUT, f"did not answer within {TIMEOUT_SECONDS:.0f} s"),
    "malformed": (Failure.MALFORMED, "answered with what is no answer"),
}


def slow(tool: Tool, seconds: float) -> Tool:
    """Return a tool that takes so many seconds longer."""

    async def run(call: ToolCall) -> str:
        await trio.sleep(seconds)
        return await tool.run(call)

    return attrs.evolve(tool, run=run)


class DroppingDoor:
    """A door that loses what it is handed for a while: a webhook whose server is down.

    It stands before a session's own door, which gets what comes through.
    """

    def __init__(self, session: Session, times: float) -> None:
        self.capability = session.capability
        self._session = session
        self._times = times
        self.attempts: list[float] = []
        """When it was asked to hand something over, in seconds of trio's clock."""

    async def deliver(self, reply: Reply) -> None:
        await trio.lowlevel.checkpoint()
        self.attempts.append(trio.current_time())
        if len(self.attempts) <= self._times:
            raise OSError("the line is dead")
        await self._session.deliver(reply)

    def disconnect(self) -> None:
        self._session.disconnect()


def drop_deliveries(session: Session, times: float) -> DroppingDoor:
    """Have the next deliveries to a session fail, so many times; `math.inf` is for ever."""
    door = DroppingDoor(session, times)
    turns = session._services.turns  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    turns.detach(session.id)
    turns.attach(session.id, door)
    return door
