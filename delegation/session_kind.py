"""The kind of a session: the request, schedule or program that opened it."""

import enum


class SessionKind(enum.StrEnum):
    """The kind of a session. It is stored in the fact that opens the session."""

    PROGRAM = "program"
    """A program opened it by a call of this library. Only that program goes on with it."""
    RUN = "run"
    """A request for a run in the background."""
    CONVERSATION = "conversation"
    """It stays open, and takes messages, until its client closes it."""
    RESPONSE = "response"
    """A response in the words of OpenAI."""
    CHAT_COMPLETION = "chat_completion"
    """A chat completion in the words of OpenAI."""
    COMPLETION = "completion"
    """A text completion in the words of OpenAI."""
    MESSAGE = "message"
    """A message in the words of Anthropic."""
    MCP_CALL = "mcp_call"
    """A call of a tool over MCP, whose client waits for the answer."""
    MCP_TASK = "mcp_task"
    """A call of a tool over MCP, whose client polls for the answer."""
    CHAT = "chat"
    """A conversation on a chat platform: only a gateway can deliver its replies."""
    JOB_RUN = "job_run"
    """A run that a schedule began."""
    JOB = "job"
    """The session that a job of a program has for itself. No agent works in it."""
    RECORD = "record"
    """A record that a client or a product keeps. No agent works in it."""

    @property
    def is_run(self) -> bool:
        """Whether an agent works in such a session."""
        return self not in _WITHOUT_AGENT


_WITHOUT_AGENT = frozenset({SessionKind.JOB, SessionKind.RECORD})
