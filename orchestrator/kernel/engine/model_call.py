"""The model calls of a task: each is paid for before it is made, and booked when it has ended.

One answer may take several calls of providers: retries, fallbacks, summaries. Each call is
reserved, and a fact records it the moment it ends, so that a call is always reserved or booked. The
text so far is collected, and its usage is computed if a call is broken off.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec.structs import replace

from orchestrator.agents import (
    AssistantMessage,
    CallDelta,
    Failure,
    Model,
    ModelError,
    ModelEvent,
    ModelRequest,
    Queued,
    ReasoningBlock,
    ReasoningDelta,
    Retrying,
    Switched,
    TextDelta,
    Usage,
    well_formed,
)
from orchestrator.agents.models.cost import with_cost
from orchestrator.agents.models.settings import NO_SETTINGS
from orchestrator.agents.models.token_estimate import estimated_usage, message_length
from orchestrator.agents.redaction.long_texts import has_long_text
from orchestrator.delegation import OverBudgetError, TaskRecord
from orchestrator.delegation.events import ModelFailure, WaitSpan
from orchestrator.kernel.engine.reservations import NO_CALL, ONE_CALL, Reservation, Reservations
from orchestrator.kernel.errors import error_text

if TYPE_CHECKING:
    from orchestrator.agents.models.call_order import Call
    from orchestrator.kernel.engine.second_call import SecondCall

ANSWERED: Final = "its parent answered a question"
SAMPLED: Final = "a server asked its model"
CONVERSATION: Final = "it summarized its conversation for the tasks that it delegates"
LONGEST_SUMMARY: Final = 8_000
"""The most characters of a summary that tasks are given."""
BROKEN_OFF: Final = "it was broken off"
SEARCH_SECONDS: Final = 30
"""The longest search of an answer for secrets, in seconds; after that the booking searches it."""
SUMMARIZED: Final = "it wrote a summary of what does not fit its window"
REFUSALS: Final = frozenset(
    {
        Failure.RATE_LIMIT,
        Failure.OVERLOADED,
        Failure.AUTH,
        Failure.QUOTA,
        Failure.BAD_REQUEST,
        Failure.CONTEXT_TOO_LONG,
    }
)
"""Failures of a provider that refuses a request before it works on it."""
BREAKS: Final = frozenset({Failure.CONNECTION, Failure.TIMEOUT, Failure.MALFORMED})
"""Failures in the middle of an answer: the usage reported by then is incomplete."""


class ModelCall(msgspec.Struct, eq=False):
    """The calls of providers for one answer (`Attempts`, `Caller`), one after another."""

    _model: Model
    _asked: Model
    """The model of the call under way: a summary may be written by another."""
    _task: TaskRecord
    _reservations: Reservations
    _emit: Callable[[ModelEvent], None]
    sent: ModelRequest
    _booked_as: str
    """The purpose in its fact; empty for an answer of the turn."""
    is_open: bool = False
    """A call is under way, or about to be made."""
    _reservation: Reservation | None = None
    _capped_by: OverBudgetError | None = None
    _error: ModelError | None = None
    """The error after which another call is made."""
    _texts: list[str] | None = None
    _thoughts: list[str] | None = None
    """The reasoning before any text, if it is kept."""
    _written: int = 0
    """The number of characters so far, including reasoning and tool calls."""
    _is_queued: bool = False
    _has_siblings: bool | None = None
    """Whether its parent has delegated to the same agent more than once."""
    _wait_began: float | None = None
    _waited: WaitSpan = msgspec.UNSET
    """When it waited for its provider, if it did."""
    second: "SecondCall | None" = None

    def __repr__(self) -> str:
        # Short, because the request that it prints refers back to it.
        return f"<calls of {self._model.name} for {self._task.path}>"

    @property
    def unmade(self) -> ModelFailure:
        """The booked reason of a call that was paid for and not made."""
        return ModelFailure.BROKEN_OFF

    def queued_call(self, size: int) -> "Call":
        return self._reservations.known_workload().queued_call(self._task, size)

    def ended_call(self, size: int, seconds: float) -> None:
        self._reservations.known_workload().ended_call(self._task, size, seconds)

    def has_siblings(self) -> bool:
        if self._has_siblings is None:
            # Decided once: the reservation of the call depends on it.
            parent = self._task.parent
            count = 0 if parent is None else parent.children.counts_by_agent[self._task.agent]
            self._has_siblings = count > 1
        return self._has_siblings

    async def begin(self, request: ModelRequest, model: Model | None = None) -> ModelRequest:
        if self.is_open:
            # It was not made: the request has to be shortened first.
            self.is_open = False
            self._reservations.not_made(self._task, self.unmade)
        self._asked = model or self._model
        self._reservations.note_settings(self._task.id, request.settings)
        self._texts = self._thoughts = None
        self._written = 0
        self._is_queued = False
        if self._task.accounts:
            request = await self._reserve(request)
        # A wait for a budget is none for the provider.
        self._wait_began, self._waited = None, msgspec.UNSET
        self.is_open = True
        self.sent = request
        return request  # noqa: ASYNC910 (without a budget there is nothing to wait for)

    async def _reserve(self, request: ModelRequest) -> ModelRequest:
        try:
            self._reservation = reservation = await self._reservations.reserve(
                self._task, self._asked, request, unmade=self.unmade
            )
        except OverBudgetError as exc:
            if self._error is None:
                raise
            problem = f"{exc.problem}; before that, {error_text(self._error)}"
            raise OverBudgetError(exc.account, exc.ran_out, problem) from self._error
        # A request that was cut before stays as short.
        self._capped_by = reservation.capped_by or self._capped_by
        cap = reservation.max_output
        return replace(request, max_output=cap) if cap else request

    def failed(self, error: ModelError, then: str = "") -> None:
        self._error = error
        self.end(ModelFailure.ATTEMPT, error, then)

    def helped(self, usage: Usage) -> None:
        self.is_open = False
        used = with_cost(usage, self._asked)
        self._book(ModelFailure.SUMMARY, SUMMARIZED, used)

    async def begin_second(self) -> "SecondCall | None":
        # Imported late: few programs repeat slow calls.
        from orchestrator.kernel.engine.second_call import reserved_second

        self.second = await reserved_second(self, self._reservations, self._task, self._asked)
        return self.second

    def end(self, reason: ModelFailure, error: Exception | None, then: str = "") -> None:
        """Book the call under way, which gave no answer."""
        if self.second is not None:
            self.second.lose(None)
        if not self.is_open:
            if isinstance(error, ModelError):
                # It fails with the result of its last call, and made no other.
                said = error_text(error)
                self._book(reason, said, NO_CALL, error.partial, charged=NO_CALL, then=then)
            return
        self.is_open = False
        if self._is_queued and not self._written:
            self._reservations.not_made(self._task, self.unmade)
            return
        usage, is_all = self.used(error, self._written)
        charged = self.charge(error, usage, is_all=is_all)
        text = ""
        if reason is not ModelFailure.ATTEMPT:
            partial = error.partial if isinstance(error, ModelError) else ""
            text = partial or "".join(self._texts or ())
        said = BROKEN_OFF if error is None else error_text(error)
        self._book(reason, said, usage, text, charged=charged, then=then)

    def _book(
        self,
        reason: ModelFailure,
        error: str,
        usage: Usage,
        text: str = "",
        *,
        charged: Usage | None = None,
        then: str = "",
    ) -> None:
        waited = self._waited
        self._wait_began, self._waited = None, msgspec.UNSET
        self._reservations.failed(
            self._task.id, reason, error, usage, text, charged=charged, then=then, waited=waited
        )

    async def break_off(self, error: BaseException) -> None:  # noqa: ASYNC910 (books at once)
        """Book the call under way, which raised an error; raise `OverBudgetError` if a budget has
        cut the answer off.
        """
        said = error.partial if isinstance(error, ModelError) else ""
        said = said or "".join(self._texts or ())
        if has_long_text(said):
            with trio.move_on_after(SEARCH_SECONDS, shield=True):
                await self._reservations.search_said(said)
        if not isinstance(error, Exception):
            self.end(ModelFailure.BROKEN_OFF, None)
        elif isinstance(error, ModelError) and (over_budget := self._cut_off_by(error)):
            self.end(ModelFailure.CUT_OFF, error)
            raise over_budget from error
        else:
            self.end(ModelFailure.FAILED, error)

    def charge(self, error: Exception | None, usage: Usage, *, is_all: bool) -> Usage | None:
        """Return the charge of budgets for a call, if it may be more than its known usage."""
        if isinstance(error, ModelError) and error.at_most is not None:
            return error.at_most
        if usage == NO_CALL:
            return NO_CALL
        if is_all or self._reservation is None:
            return None
        return self._reservation.charged(usage)

    def used(self, error: Exception | None, written: int) -> tuple[Usage, bool]:
        """Return the known usage of a call that wrote some text, and whether it is complete."""
        estimated = estimated_usage(self._asked, self.sent, written=written)
        one_call = with_cost(ONE_CALL, self._asked)
        if not isinstance(error, ModelError):
            # Broken off, or an error of the model's own code, which may have sent anything.
            return (estimated if error is None or written else one_call), False
        reported = error.usage
        if reported is None or not reported.is_whole:
            if written or error.partial:
                return estimated, False
            return one_call, error.kind in REFUSALS
        if reported == NO_CALL:
            return reported, True
        if not reported.tokens and written:
            return estimated, False
        is_all = not reported.tokens or error.kind not in BREAKS
        return with_cost(reported, self._asked), is_all

    def _cut_off_by(self, error: ModelError) -> OverBudgetError | None:
        """Return the budget that cut an answer off, because it could not pay for a longer one."""
        if error.kind is not Failure.CUT_OFF or self._capped_by is None:
            return None
        problem = (
            f"is used up: it paid for {self.sent.max_output} tokens of an answer that is longer"
        )
        tightest = self._capped_by
        return OverBudgetError(tightest.account, tightest.ran_out, problem)

    def answered(self, answer: AssistantMessage) -> AssistantMessage:
        """Return an answer with its cost. It is held until it is recorded."""
        # A model of the user may answer anything; the turn refuses it.
        usage = getattr(answer, "usage", None)
        if not isinstance(usage, Usage) or not usage.is_whole:
            return answer
        if usage == NO_CALL:
            # A model of the user that reports no usage: the largest possible usage is charged.
            written = message_length(answer)
            paid = estimated_usage(self._asked, self.sent, written=written)
            if self._reservation is not None:
                self._reservation.charge = self._reservation.charged(paid)
        else:
            paid = with_cost(usage, self._asked, answer.model)
        if self._reservation is not None:
            self._reservation.used = paid
        if self._waited is not msgspec.UNSET:
            self._reservations.waits[self._task.id] = self._waited
        if self._thoughts:
            thought = well_formed("".join(self._thoughts))
            block = ReasoningBlock(answer.model, {}, text=thought)
            answer = replace(answer, reasoning=(block, *answer.reasoning))
        return answer if paid is usage else replace(answer, usage=paid)

    def on_event(self, event: ModelEvent) -> None:
        # Not a `match`, which takes three times as long: this is every piece of every answer.
        if isinstance(event, TextDelta):
            if self._texts is None:
                self._texts = []
            self._texts.append(event.text)
            self._written += len(event.text)
        elif isinstance(event, ReasoningDelta):
            self._written += len(event.text)
            if not self._texts and self._reservations.keeps_reasoning(self._task):
                self._thoughts = [*(self._thoughts or ()), event.text]
        elif isinstance(event, CallDelta):
            self._written += len(event.arguments)
        elif isinstance(event, Queued):
            self._is_queued = event.waiting
            self._note_wait(event.waiting)
        elif isinstance(event, (Retrying, Switched)):
            # Earlier text is void, and is booked.
            self._texts = self._thoughts = None
        self._emit(event)

    def _note_wait(self, waiting: bool) -> None:
        now, began = self._reservations.now(), self._wait_began
        if waiting and began is None:
            self._wait_began = now
        elif not waiting and began is not None and now > began:
            # Several queues, one after the other, are one wait.
            self._waited = (began, now)


class _QuestionCall(ModelCall):
    """The calls for one question, each booked as a question.

    Their text is not booked, because it is not a message of the task that asks.
    """

    @property
    def unmade(self) -> ModelFailure:
        return ModelFailure.QUESTION

    def answered(self, answer: AssistantMessage) -> AssistantMessage:
        """Return an answer, which is booked by then."""
        answer = super().answered(answer)
        usage = getattr(answer, "usage", None)
        charged = None if self._reservation is None else self._reservation.charge
        if not isinstance(usage, Usage) or not usage.is_whole:
            usage = ONE_CALL
            if self._reservation is not None:
                charged = self._reservation.charged(usage)
        self.is_open = False
        text = getattr(answer, "text", "") if self._booked_as is CONVERSATION else ""
        summary = text.strip()[:LONGEST_SUMMARY] if isinstance(text, str) else ""
        reason = ModelFailure.CONVERSATION if summary else ModelFailure.QUESTION
        super()._book(reason, self._booked_as, usage, summary, charged=charged)
        return answer

    def _book(
        self,
        reason: ModelFailure,
        error: str,
        usage: Usage,
        text: str = "",
        *,
        charged: Usage | None = None,
        then: str = "",
    ) -> None:
        del reason, text, then
        super()._book(ModelFailure.QUESTION, error, usage, charged=charged)


class BookedModel(msgspec.Struct, eq=False):
    """The model of a task: every call is reserved first, and booked whatever becomes of it."""

    _model: Model
    _task: TaskRecord
    _reservations: Reservations
    _booked_as: str = ""

    @property
    def name(self) -> str:
        return self._model.name

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        model, task = self._model, self._task
        call = (_QuestionCall if self._booked_as else ModelCall)(
            model, model, task, self._reservations, request.tell, request, self._booked_as
        )
        request = call.sent = replace(request, tell=call.on_event, attempts=call, caller=call)
        if task.accounts or request.settings is not NO_SETTINGS:
            request = await call.begin(request)
        else:
            call.is_open = True
        try:
            answer = await model.answer(request)
        except BaseException as exc:
            await call.break_off(exc)  # noqa: ASYNC102 (its only wait is shielded and bounded)
            raise
        answer = call.answered(answer)
        # The request leads back to its call: both are freed now, not by a garbage collection.
        del call.sent
        return answer


class QuestionModel(BookedModel):
    """A model that a task asks beside its turn: the task pays, its transcript does not change."""

    _booked_as: str = ANSWERED
