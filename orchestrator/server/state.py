"""What all routes share: whom they talk to, and how this server was set up."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from agents import Agent
from delegation import SessionRecord
from orchestrator.doors.http import HttpDoor
from orchestrator.journal.bookkeeper import Bookkeeper
from orchestrator.read_api import ReadApi
from orchestrator.runtime import Orchestrator
from orchestrator.server.live.live_text import LiveText
from orchestrator.server.metrics import Metrics
from orchestrator.server.transport.errors import HttpError

BODY_LIMIT: Final = 10_000_000


@attrs.frozen(kw_only=True)
class Settings:
    """How a server was set up."""

    token: str
    hosts: frozenset[str] | None = None
    """The names that it answers to; None is any."""
    body_limit: int = BODY_LIMIT
    """How many bytes a request may have."""


@attrs.define(kw_only=True)
class ServerState:
    """One server, as its routes see it."""

    orchestrator: Orchestrator
    agents: Mapping[str, Agent[Any]]
    """Who can be talked to, by the name of the model that clients say."""
    door: HttpDoor
    live_text: LiveText
    metrics: Metrics
    settings: Settings
    unserved_sessions: Sequence[SessionRecord] = ()
    """What waits for agents that are not served here."""
    shutdown: trio.Event = attrs.field(factory=trio.Event)
    """The server ends: whoever only waits for news is let go."""

    @property
    def read(self) -> ReadApi:
        return self.orchestrator.read

    @property
    def book(self) -> Bookkeeper:
        return self.orchestrator.services.book

    @property
    def is_stopping(self) -> bool:
        """Nothing new is begun."""
        return self.book.stopping

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
