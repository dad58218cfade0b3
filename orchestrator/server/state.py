"""The state that all routes of one server share."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from agents import Agent
from delegation import SessionRecord
from orchestrator.doors.http import HttpDoor
from orchestrator.read_api import ReadApi
from orchestrator.runtime import Orchestrator
from orchestrator.server.live.live_text import LiveText
from orchestrator.server.metrics import Metrics
from orchestrator.server.transport.errors import HttpError

BODY_LIMIT: Final = 10_000_000


@attrs.frozen(kw_only=True)
class Settings:
    """The configuration of a server."""

    token: str
    hosts: frozenset[str] | None = None
    """The host names that it answers to; None is any."""
    body_limit: int = BODY_LIMIT
    """How many bytes a request may have."""


@attrs.define(kw_only=True)
class ServerState:
    """One running server."""

    orchestrator: Orchestrator
    agents: Mapping[str, Agent[Any]]
    """The agents, by the model name that clients use."""
    door: HttpDoor
    live_text: LiveText
    metrics: Metrics
    settings: Settings
    unserved_sessions: Sequence[SessionRecord] = ()
    """The unfinished sessions whose agents are not served here."""
    unusable_agents: Mapping[str, str] = attrs.field(factory=dict[str, str])
    """Why agents that are served cannot run, by their names: a key is missing, for example."""
    shutdown: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server shuts down: streams end, and waits return."""

    @property
    def read(self) -> ReadApi:
        return self.orchestrator.read

    @property
    def is_stopping(self) -> bool:
        """Whether the orchestrator begins nothing new."""
        return self.read.is_stopping

    def agent(self, model: str) -> Agent[Any]:
        """Return the agent that a client means by the name of a model."""
        if model not in self.agents:
            raise HttpError(
                404,
                f"there is no model {model!r}; there are: {', '.join(self.agents)}",
                code="model_not_found",
                param="model",
            )
        return self.agents[model]
