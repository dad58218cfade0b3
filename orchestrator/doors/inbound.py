"""What somebody outside wants of an agent, and how that enters the journal."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from agents import Agent, Pipeline, Tool, UserMessage, well_formed
from delegation import SessionId, SessionRecord
from delegation.events import MessageReceived, Said, SessionOpened
from orchestrator.budget_scope import current_grants
from orchestrator.services import Services

NO_STRINGS: Final[Mapping[str, str]] = {}


@attrs.frozen(kw_only=True)
class InboundRequest:
    """One message to an agent, with all that goes with it."""

    agent: Agent[Any]
    message: UserMessage | None
    """None goes on with the last thing in the history: what a tool answered."""
    context: Mapping[str, str] = NO_STRINGS
    """Where it comes from, by the names of `delegation.session_context`."""
    instructions: str = ""
    """What holds for this turn, besides what the agent is told always."""
    history: tuple[Said, ...] = ()
    """What was said elsewhere before."""
    labels: Mapping[str, str] = NO_STRINGS
    """By what whoever asks knows the session again."""
    tools: tuple[Tool, ...] = ()
    """What whoever asks runs itself."""
    attended: bool = False
    """Somebody is there to be asked for approval meanwhile."""


def goal_message(agent: Agent[Any], goal: Any) -> UserMessage:
    """Return what an agent is told to do: text, or of a pipeline whatever it takes."""
    text = agent.as_goal(goal) if isinstance(agent, Pipeline) else goal
    return UserMessage(well_formed(text))


def open_inbound_session(
    services: Services, request: InboundRequest, id_: SessionId
) -> SessionRecord:
    """Open a session for somebody who asks, and let it have the message."""
    services.book.require_accepting()
    agent = request.agent
    if request.tools:
        agent = attrs.evolve(agent, tools=(*agent.tools, *request.tools))
    # Before the first fact: an agent whose model cannot be had leaves no trace.
    services.registry.register_session(id_, agent)
    services.book.post(
        SessionOpened(
            id_,
            agent.name,
            agent.budget,
            current_grants(),
            attended=request.attended,
            history=request.history,
            labels=request.labels,
        )
    )
    post_message(services, request, id_)
    return services.book.ledger.sessions[id_]


def post_message(services: Services, request: InboundRequest, id_: SessionId) -> int:
    """Let a session have a message, and return the number of the fact that says so."""
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
