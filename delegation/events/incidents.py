"""Incidents of model calls, such as retries and cut requests, which no transcript contains."""

import msgspec


class Incident(msgspec.Struct, frozen=True, gc=False):
    """An event of a model call besides its answer."""

    after: int
    """How many messages of the transcript came before it."""
    error: str = ""
    """Why the provider failed, before another call was made."""
    then: str = ""
    """The model that was called instead; "" is the same one."""
    left_out: int = 0
    """How many characters of the conversation the model did not read, to fit its window."""
    summary: str = ""
    """The summary of the conversation that the model wrote for tasks that it delegates."""
