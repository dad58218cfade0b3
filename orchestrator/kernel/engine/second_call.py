"""A second call of a model for the same answer, which is paid for beside the first.

The fact `ModelCalled` names the reservation of both before the second one is sent. The call that is
not the answer is booked as a failed attempt, by a fact that keeps the other one reserved.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from orchestrator.agents import Model, ModelError
from orchestrator.delegation import TaskRecord
from orchestrator.delegation.events import ModelCalled, ModelFailed, ModelFailure
from orchestrator.kernel.engine.reservations import Reservation, Reservations
from orchestrator.kernel.errors import error_text

if TYPE_CHECKING:
    from orchestrator.kernel.engine.model_call import ModelCall

SLOWER: Final = "another call for the same answer was faster"


async def reserved_second(
    calls: "ModelCall", reservations: Reservations, task: TaskRecord, model: Model
) -> "SecondCall | None":
    """Reserve the usage of the call under way once more; return None if it does not fit now."""
    first, held = reservations.open.get(task.id), None
    if first is not None:
        held = Reservation(first.accounts, model, calls.sent)
        reservations.try_hold(held)
        if held.held != first.held:
            reservations.stop_waiting(held)
            reservations.release(held)
            return None  # noqa: ASYNC910 (nothing is reserved)
        if held.is_common and not await reservations.known_common().confirm(held):
            return None  # noqa: ASYNC910 (it has waited for the other journals)
    second = SecondCall(calls, reservations, task, held)
    if held is not None:
        try:
            reservations.book.post(ModelCalled(task.id, held.most + held.most))
            await reservations.book.wait_durable()
        except BaseException:
            second.lose(None, sent=False)
            raise
    return second  # noqa: ASYNC910 (without a budget there is nothing to wait for)


class SecondCall:
    """The second call of a task beside the one under way."""

    def __init__(
        self,
        calls: "ModelCall",
        reservations: Reservations,
        task: TaskRecord,
        held: Reservation | None,
    ) -> None:
        self._calls = calls
        self._reservations = reservations
        self._task = task.id
        self._held = held

    def lose(self, error: ModelError | None, *, sent: bool = True) -> None:
        """Book the call that did not give the answer; the other one stays reserved."""
        calls, reservations, held = self._calls, self._reservations, self._held
        calls.second = None
        if not reservations.book.closed:
            if sent:
                usage, is_all = calls.used(error, 0)
                charged = calls.charge(error, usage, is_all=is_all)
                is_question = calls.unmade is ModelFailure.QUESTION
                reason = ModelFailure.QUESTION if is_question else ModelFailure.ATTEMPT
                said = SLOWER if error is None else error_text(error)
                settings = reservations.settings_of(self._task)
                reservations.book.post(
                    ModelFailed(
                        self._task,
                        said,
                        usage,
                        reason,
                        charged=charged,
                        settings=settings,
                        reserved=msgspec.UNSET if held is None else held.most,
                    )
                )
            elif held is not None:
                reservations.book.post(ModelCalled(self._task, held.most))
        if held is not None:
            reservations.release(held)
