"""What happened to a model call besides its answer: the transcript does not say it."""

import msgspec


class Incident(msgspec.Struct, frozen=True, gc=False):
    """What happened to a model call besides its answer."""

    after: int
    """How many messages of the transcript came before it."""
    error: str = ""
    """Why the provider failed, before another call was made."""
    then: str = ""
    """The model that was called instead; "" is the same one."""
    left_out: int = 0
    """How many characters of the conversation the model did not read, to fit its window."""
