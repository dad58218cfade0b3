"""Errors of an answer that cannot be used. The endpoint makes a `ModelError` of them."""

from typing import Final

from orchestrator.agents.errors import Failure

CUT_OFF: Final = "was cut off at its limit of output tokens"


class UnusableAnswerError(Exception):
    """An answer cannot be used. The endpoint, which knows the model, makes a `ModelError` of it."""

    def __init__(self, kind: Failure, problem: str, retry_after: float | None = None) -> None:
        super().__init__(problem)
        self.kind = kind
        self.retry_after = retry_after


class AnswerTooLongError(UnusableAnswerError):
    """An answer exceeds a limit. It is not asked for again: the next one would be as long."""

    def __init__(self, limit: str) -> None:
        super().__init__(Failure.MALFORMED, f"gave an answer without end: it has more than {limit}")
