"""The errors of one agent, by their reader.

* AgentError                 the task fails with it
  x ModelError               the provider failed; see its `kind`
    · ScriptExhaustedError   a scripted model has no step left
  x LimitExceededError       the task reached a limit of its agent
  x InputError               the agent does not take this goal
  x OutputError              the final answer has the wrong type
* ToolError                  the model reads it and goes on
* DefinitionError            the developer reads it: an agent, tool or model name is wrong
"""

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.agents.messages import Usage


class AgentError(Exception):
    """A task cannot go on."""


class Failure(enum.Enum):
    """The kinds of failures of a provider."""

    RATE_LIMIT = "rate_limit"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    MALFORMED = "malformed"
    """The answer does not follow the protocol."""
    AUTH = "auth"
    QUOTA = "quota"
    """The account is out of money: waiting does not help."""
    CONTEXT_TOO_LONG = "context_too_long"
    BAD_REQUEST = "bad_request"
    REFUSED = "refused"
    """The provider refuses to answer."""
    FILTERED = "filtered"
    """A filter of the provider found something in the answer."""
    CUT_OFF = "cut_off"
    """The answer was longer than its limit."""
    OTHER = "other"

    @property
    def is_transient(self) -> bool:
        """The same request may succeed a little later."""
        return self in _TRANSIENT


_TRANSIENT = frozenset(
    {Failure.RATE_LIMIT, Failure.OVERLOADED, Failure.TIMEOUT, Failure.CONNECTION, Failure.MALFORMED}
)


class ModelError(AgentError):
    """The provider failed."""

    def __init__(
        self,
        message: str,
        *,
        kind: Failure = Failure.OTHER,
        retry_after: float | None = None,
        partial: str = "",
        usage: "Usage | None" = None,
        is_transient: bool | None = None,
        at_most: "Usage | None" = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_transient = kind.is_transient if is_transient is None else is_transient
        """The same request may succeed a little later; None is what its kind says."""
        self.retry_after = retry_after
        """The seconds after which the provider asks for a retry."""
        self.partial = partial
        """The text before the failure."""
        self.usage = usage
        """The known usage of the failed call, which is charged all the same. Without a call,
        nothing was sent."""
        self.at_most = at_most
        """The most that it may have used, if that is known; budgets are charged with it."""


class ScriptExhaustedError(ModelError):
    """A scripted model was asked more often than it has steps."""

    def __init__(self, steps: int, conversations: int = 1) -> None:
        if conversations > 1:
            advice = (
                f"{conversations} tasks share it, and each took steps as it came; give each task"
                " a model of its own, or let steps be functions of the transcript"
            )
        else:
            advice = "add a step, or use ScriptedModel.always(step)"
        super().__init__(
            f"the script is exhausted: it has {steps} step{'s' * (steps != 1)}, and one"
            f" more was asked for; {advice}"
        )
        self.steps = steps
        self.conversations = conversations
        """How many transcripts have begun with it: more than one task shares it."""


class LimitExceededError(AgentError):
    """The task used up what its agent allows."""

    def __init__(self, limit: str, ran_out: str) -> None:
        super().__init__(f"used up its limit of {limit}")
        self.limit = limit
        self.ran_out = ran_out
        """The amount that ran out: `calls`, `tokens`, `usd`."""


class InputError(AgentError):
    """The agent does not take this goal."""


class OutputError(AgentError):
    """The final answer does not have the promised or requested type."""

    def __init__(self, message: str, problems: "Sequence[str]" = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (message,)
        """Its problems, one by one."""


class RefusedBy(enum.Enum):
    """The reason that a call was refused before its tool ran."""

    UNKNOWN_TOOL = "unknown_tool"
    """The agent has no tool of that name."""
    REPEAT_LIMIT = "repeat_limit"
    """The same call got the same answer too often."""
    APPROVAL = "approval"
    """A rule or a person denied it, or no person can be asked."""
    SHUTDOWN = "shutdown"
    """The orchestrator is stopping, and starts nothing new."""
    CRASH = "crash"
    """A crash interrupted it, and it is not run again."""


class ToolError(Exception):
    """A tool cannot answer. The model reads why and goes on."""

    def __init__(
        self, *args: object, consumes: "Sequence[int]" = (), refused_by: RefusedBy | None = None
    ) -> None:
        super().__init__(*args)
        self.consumes = consumes
        """The notices that the sentence contains (`ToolResult.consumes`)."""
        self.refused_by = refused_by
        """The reason of a refusal, if the tool did not run."""


class DefinitionError(ValueError):
    """An agent, a tool or a model name is not well defined."""
