"""Wrapper: of several calls with the same prefix one leads, and fills the provider's cache.

A provider reads a prefix from its cache once it has begun to answer a request with that prefix.
So the first call leads, and the others follow when its response begins. If the leader fails or is
cancelled, the next call leads. The whole wait is bounded, and a prefix too short for the cache
waits for no leader.
"""

import math
from itertools import islice
from typing import Final

import trio
from msgspec.structs import replace

from orchestrator.agents.messages import AssistantMessage
from orchestrator.agents.models.model import Delta, Model, ModelEvent, ModelRequest, Queued
from orchestrator.agents.models.prompt_prefix import (
    is_long_enough,
    least_tokens,
    may_be_marked,
    shared_context,
)
from orchestrator.agents.models.wrappers.wrapper import ModelWrapper
from orchestrator.agents.transcript import Transcript

LONGEST_WAIT: Final = 10.0
"""The seconds after which calls no longer wait for a response to begin: a model that thinks first
has read its prompt by then."""
LIFETIME: Final = 300.0
"""The seconds for which providers keep a prefix after its last use."""
MOST_LENGTHS: Final = 1_000


def with_leader(model: Model, *, needs_marks: bool = False) -> Model:
    """Return a model whose calls with the same prefix wait for the first of them.

    `needs_marks` says that the provider caches marked prefixes only.
    """
    return _LedModel(model, needs_marks=needs_marks)


class _Prefix:
    """A prefix, from its first call until the provider forgets it."""

    __slots__ = ("cached_until", "followers", "leader", "leading", "sent_at")

    def __init__(self) -> None:
        self.cached_until = -math.inf
        self.leader: Transcript | None = None
        """The transcript of a leader that is under way, until its response begins."""
        self.leading = 0
        """How many calls lead: two if the leader is slow, and is repeated."""
        self.sent_at = -math.inf
        """The time of sending the leader; infinite while the leader itself waits."""
        self.followers = trio.lowlevel.ParkingLot()

    @property
    def held_until(self) -> float:
        return -math.inf if self.leader is None else self.sent_at + LONGEST_WAIT

    def use(self, transcript: Transcript) -> bool:
        """Begin a call, and return whether it leads."""
        now = trio.current_time()
        if self.leader is not None:
            return False
        if self.cached_until > now:
            self.cached_until = now + LIFETIME
            return False
        # A leader that takes over does not prolong the wait.
        if not self.followers or self.sent_at == math.inf:
            self.sent_at = now
        self.leader = transcript
        return True

    def begin_response(self) -> None:
        self.leader = None
        self.cached_until = trio.current_time() + LIFETIME
        self.followers.unpark_all()

    def lose_leader(self) -> None:
        self.leader = None
        self.followers.unpark()

    def hold_leader(self, waiting: bool) -> None:
        """Count the wait of the followers from the time at which the leader is sent."""
        self.sent_at = math.inf if waiting else trio.current_time()
        self.followers.unpark_all()


class _LedModel(ModelWrapper):
    def __init__(self, model: Model, *, needs_marks: bool) -> None:
        super().__init__(model)
        self._needs_marks = needs_marks
        self._least = least_tokens(model.name)
        self._prefixes: dict[int, _Prefix] = {}
        self._are_long: dict[int, bool] = {}
        """Whether instructions and tools are long enough without a shared context."""

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        # A later call of a task continues its own request.
        if len(request.transcript) != 1 or (key := self._key(request)) is None:
            return await self._model.answer(request)
        prefix = self._prefixes.get(key) or self._new_prefix(key)
        # The same request again is the leader itself, which is slow: it does not wait for itself.
        if prefix.leader is not request.transcript:
            if prefix.held_until > trio.current_time():
                await self._follow(prefix, request)
            if not prefix.use(request.transcript):
                return await self._model.answer(request)
        return await self._lead(prefix, request)

    async def _follow(self, prefix: _Prefix, request: ModelRequest) -> None:  # noqa: ASYNC910 (it parks)
        """Wait until the response of the leader begins, or until there is no leader."""
        request.tell(Queued(True))
        while (until := prefix.held_until) > trio.current_time():
            with trio.move_on_at(until):
                await prefix.followers.park()
        request.tell(Queued(False))

    async def _lead(self, prefix: _Prefix, request: ModelRequest) -> AssistantMessage:
        leads = True

        def tell(event: ModelEvent) -> None:
            nonlocal leads
            if leads:
                if isinstance(event, Delta):
                    leads = False
                    prefix.begin_response()
                elif isinstance(event, Queued) and prefix.leading == 1:
                    prefix.hold_leader(event.waiting)
            request.tell(event)

        prefix.leading += 1
        try:
            answer = await self._model.answer(replace(request, tell=tell))
            if leads:
                leads = False
                prefix.begin_response()
        finally:
            prefix.leading -= 1
            if leads and not prefix.leading:
                prefix.lose_leader()
        return answer

    def _key(self, request: ModelRequest) -> int | None:
        """Return the key of the prefix of a request; None if no cache would keep it."""
        if self._needs_marks and not may_be_marked(request):
            return None
        shared = shared_context(request)
        names = (tool.name for tool in request.tools)
        own = hash((request.instructions, *names))
        if (is_long := self._are_long.get(own)) is None:
            if len(self._are_long) >= MOST_LENGTHS:
                self._are_long.clear()
            is_long = self._are_long[own] = is_long_enough(request, "", self._least)
        if is_long or (shared and is_long_enough(request, shared, self._least)):
            return hash((own, shared))
        return None

    def _new_prefix(self, key: int) -> _Prefix:
        prefixes = self._prefixes
        # Each new prefix looks at two old ones, so forgotten ones do not pile up.
        for oldest in tuple(islice(prefixes, 2)):
            old = prefixes.pop(oldest)
            if old.leading or old.cached_until > trio.current_time():
                prefixes[oldest] = old
        made = prefixes[key] = _Prefix()
        return made
