"""The view of a session for clients: its state, its agent's messages, and why it failed."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, assert_never

import attrs
import msgspec
from msgspec.structs import replace

from orchestrator.agents import AssistantMessage, Budget, Failure, ToolCall, unanswered_calls
from orchestrator.agents.logprobs import TokenLogprob
from orchestrator.delegation import Cause, Ending, Grant, Outcome, SessionRecord
from orchestrator.ports.execution import PROCESS_DIED
from orchestrator.ports.journals import SessionSummary
from orchestrator.ports.sessions import is_over
from orchestrator.products.server.request_state import RequestState

CutReason: TypeAlias = Literal["length", "content_filter"]
State: TypeAlias = Literal["queued", "in_progress", "completed", "failed", "cancelled"]

# The code and the HTTP status of a failed provider, by the kind of failure.
_PROVIDER: Final = {
    "rate_limit": ("rate_limit", 429),
    "overloaded": ("provider", 503),
    "timeout": ("provider", 504),
    "connection": ("provider", 502),
    "malformed": ("provider", 502),
    "auth": ("auth", 502),
    "quota": ("quota", 429),
    "context_too_long": ("context", 400),
    "bad_request": ("provider", 502),
    "refused": ("provider", 502),
    "filtered": ("provider", 502),
    "cut_off": ("provider", 502),
    "other": ("provider", 502),
}
_CUT: Final[Mapping[str, CutReason]] = {
    Failure.CUT_OFF.value: "length",
    Failure.FILTERED.value: "content_filter",
}
REFUSES: Final = "refused to answer: "
"""The prefix of the error of a model that refuses to answer."""
_INTERNAL: Final = ("internal", 500)
INTERRUPTED: Final = replace(
    PROCESS_DIED, error=f"{PROCESS_DIED.error}; `orchestrator resume` goes on with it"
)


@attrs.frozen(kw_only=True)
class FailureReason:
    """The reason why a session did not succeed, for clients."""

    code: str
    """`rate_limit`, `auth`, `quota`, `context`, `provider`, `tool_limit`, `invalid_output`,
    `cancelled` or `internal`."""
    message: str
    status: int
    """The HTTP status, if the client waits for the answer."""
    retry_after: float | None = None


def last_outcome_of(session: SessionRecord) -> Outcome | None:
    """Return the outcome of the last turn; for clients, an interrupted run has failed."""
    return INTERRUPTED if session.awaits_resume else session.last_outcome


def state_of(session: SessionRecord) -> State:
    """Return the state of a session, in the words of OpenAI's responses."""
    outcome = last_outcome_of(session)
    return _state(
        has_begun=session.turn is not None or session.turns > 0,
        is_over=is_over(session),
        closed=session.closed,
        ending=None if outcome is None else outcome.ending,
    )


def state_in(summary: SessionSummary) -> State:
    """Return the same of a summary."""
    return _state(
        has_begun=summary.has_begun,
        is_over=summary.is_over,
        closed=summary.closed,
        ending=INTERRUPTED.ending if summary.awaits_resume else summary.ending,
    )


def _state(*, has_begun: bool, is_over: bool, closed: bool, ending: Ending | None) -> State:
    if not is_over:
        return "in_progress" if has_begun else "queued"
    if closed or ending is None or ending is Ending.CANCELLED:
        return "cancelled"
    return "completed" if ending is Ending.SUCCEEDED else "failed"


def failure_reason(outcome: Outcome) -> FailureReason | None:
    """Return the reason why an outcome is no success; None for a success."""
    match outcome.ending:
        case Ending.SUCCEEDED:
            return None
        case Ending.FAILED if outcome.cause is Cause.OUTPUT:
            code, status = "invalid_output", 500
        case Ending.FAILED:
            code, status = _PROVIDER.get(outcome.kind, _INTERNAL)
        case Ending.OVER_BUDGET if Grant(outcome.account, Budget()).is_standing:
            # The budget of the client's key, not a budget of its agents.
            code, status = _PROVIDER["quota"]
        case Ending.OVER_BUDGET:
            code, status = "tool_limit", 500
        case Ending.TIMED_OUT:
            code, status = "tool_limit", 504
        case Ending.CANCELLED:
            code, status = "cancelled", 499
        case Ending.REFUSED | Ending.LOST:
            code, status = _INTERNAL
        case _:
            assert_never(outcome.ending)
    return FailureReason(
        code=code,
        message=f"{outcome.ending}: {outcome.error}",
        status=status,
        retry_after=outcome.retry_after,
    )


def cut_reason(session: SessionRecord) -> CutReason | None:
    """Return why the answer of a session's own model is cut off; None if it is complete."""
    outcome = _model_failure(session)
    return None if outcome is None else _CUT.get(outcome.kind)


def refusal_of(session: SessionRecord) -> str | None:
    """Return the refusal of a session's own model, if it refuses to answer."""
    outcome = _model_failure(session)
    if outcome is None or outcome.kind != Failure.REFUSED.value:
        return None
    return outcome.error.partition(REFUSES)[2] or outcome.error


def cut_text(session: SessionRecord) -> str:
    """Return the model's text of an answer that is cut off."""
    last = session.root.transcript[-1]
    is_broken_off = isinstance(last, AssistantMessage) and last.incomplete
    return last.text if is_broken_off else ""


def _model_failure(session: SessionRecord) -> Outcome | None:
    outcome = session.last_outcome
    # The outcome of an interrupted run is not a failure of its model.
    if outcome is None or outcome.ending is not Ending.FAILED or outcome.cause is not Cause.MODEL:
        return None
    if session.awaits_resume:
        return None
    return outcome if is_over(session) and not session.closed else None


class AgentMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of an agent to its client."""

    id: str
    text: str
    incomplete: bool = False
    """Its turn ended in the middle."""
    is_reasoning: bool = False
    """It is the model's reasoning before the message, for a client that asked for it."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The log probabilities of its tokens, for a client that asked for them."""


def is_shown(session: SessionRecord, text: str) -> bool:
    """Return whether a message is shown: text before an answer in JSON is hidden."""
    opening = session.state(RequestState).opening
    return not opening or (bool(text.strip()) and text.lstrip()[0] in opening)


def answers_in_json(session: SessionRecord) -> bool:
    """Return whether the client of a session reads its answer as one JSON."""
    return bool(session.state(RequestState).opening)


def wants_logprobs(session: SessionRecord) -> bool:
    """Return whether the client of a session asks for the log probabilities of tokens."""
    return "top_logprobs" in session.terms.settings


def messages_in(session: SessionRecord, answer: AssistantMessage) -> list[AgentMessage]:
    """Return the messages in an answer of a model: its reasoning, if kept, and its text."""
    thought = "".join(block.text for block in answer.reasoning)
    found = [AgentMessage(answer.id, thought, is_reasoning=True)] if thought else []
    if answer.text:
        logprobs = answer.logprobs if wants_logprobs(session) else ()
        text = AgentMessage(answer.id, answer.text, answer.incomplete, logprobs=logprobs)
        found.append(text)
    return found


def agent_messages(session: SessionRecord) -> list[AgentMessage]:
    """Return the messages of a session's agent: commentary, and at last its answer."""
    # A resumed turn repeats the message that a shutdown interrupted.
    end = -1 if session.is_interrupted_in_answer else None
    every = [
        it
        for message in session.root.transcript[:end]
        if isinstance(message, AssistantMessage)
        for it in messages_in(session, message)
    ]
    own = [
        it
        for it in every
        if not it.id.startswith("h_") and (it.is_reasoning or is_shown(session, it.text))
    ]
    outcome = session.last_outcome
    is_ended = is_over(session) and session.turn is None
    if is_ended and outcome is not None and outcome.output:
        # The output of a failed turn is the last text of the conversation, even of an earlier turn.
        known = own if outcome.succeeded else every
        if not known or outcome.output != known[-1].text:
            # The output of a pipeline.
            own.append(AgentMessage(f"m_{session.id}", outcome.output))
    return own


def client_calls(session: SessionRecord) -> Sequence[ToolCall]:
    """Return the tool calls that the client has to run."""
    outcome = session.last_outcome
    if session.turn is not None or outcome is None or not outcome.succeeded:
        return ()
    return unanswered_calls(session.root.transcript)
