"""A message to an agent from outside, and how it enters the journal."""

from collections.abc import Mapping
from typing import Any

import attrs

from agents import Agent, Pipeline, Tool, UserMessage, well_formed
from delegation import SessionId, SessionRecord
from delegation.events import EarlierMessage, MessageReceived
from orchestrator.doors.lifecycle import NO_STRINGS, open_new_session
from orchestrator.services import Services


@attrs.frozen(kw_only=True)
class InboundRequest:
    """One message to an agent, with everything that a door adds to it."""

    agent: Agent[Any]
    message: UserMessage | None
    """None continues after the last message of the history: the result of a client's tool."""
    context: Mapping[str, str] = NO_STRINGS
    """Where the message comes from, by the names of `delegation.session_context`."""
    instructions: str = ""
    """Instructions for this turn, in addition to the agent's own."""
    history: tuple[EarlierMessage, ...] = ()
    """The messages of a conversation that took place elsewhere."""
    labels: Mapping[str, str] = NO_STRINGS
    """Strings by which the client finds the session again."""
    tools: tuple[Tool, ...] = ()
    """Tools that the client runs itself."""
    attended: bool = False
    """A person answers approval questions while the caller waits."""


def goal_message(agent: Agent[Any], goal: Any) -> UserMessage:
    """Return the first message about a goal: a text, or the input of a pipeline as one."""
    text = agent.as_goal(goal) if isinstance(agent, Pipeline) else goal
    return UserMessage(well_formed(text))


def open_inbound_session(
    services: Services, request: InboundRequest, id_: SessionId | None = None
) -> SessionRecord:
    """Open a session for a request, and post its message."""
    session = open_new_session(
        services,
        agent_with_client_tools(request),
        id_,
        history=request.history,
        labels=request.labels,
        attended=request.attended,
    )
    post_message(services, request, session.id)
    return session


def agent_with_client_tools(request: InboundRequest) -> Agent[Any]:
    """Return the agent of a request, with the tools that the client runs itself."""
    if not request.tools:
        return request.agent
    return attrs.evolve(request.agent, tools=(*request.agent.tools, *request.tools))


def post_message(services: Services, request: InboundRequest, id_: SessionId) -> int:
    """Post the message of a request to a session, and return the sequence number of the fact."""
    message = UserMessage("") if request.message is None else request.message
    services.book.post(
        MessageReceived(
            id_,
            message.text,
            message.parts,
            message.id,
            request.context,
            instructions=request.instructions,
            silent=request.message is None,
        )
    )
    return services.book.ledger.last_seq
