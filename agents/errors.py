"""What can go wrong inside one agent, by who reads it.

* AgentError                 the task reads it: it ends with this
  x ModelError               the provider failed us
    · ScriptExhaustedError   a scripted model has no step left
  x LimitExceededError       the task used up what its agent allows
  x OutputError              the final answer is not what the agent promises
* ToolError                  the model reads it and goes on
* DefinitionError            the developer reads it: an agent, tool or model name is wrong
"""


class AgentError(Exception):
    """A task cannot go on."""


class ModelError(AgentError):
    """The provider failed us."""


class ScriptExhaustedError(ModelError):
    """A scripted model was asked more often than it has steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(
            f"the script is exhausted: it has {steps} step{'s' * (steps != 1)}, and one"
            " more was asked for; add a step, or use ScriptedModel.always(step)"
        )
        self.steps = steps


class LimitExceededError(AgentError):
    """The task used up what its agent allows."""

    def __init__(self, limit: str, allowed: int) -> None:
        super().__init__(f"used up its limit of {allowed} {limit}")
        self.limit = limit
        self.allowed = allowed


class OutputError(AgentError):
    """The final answer is not what the agent promises."""


class ToolError(Exception):
    """A tool says no. The model reads why and goes on."""


class DefinitionError(ValueError):
    """An agent, a tool or a model name is not well defined."""
