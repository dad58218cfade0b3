"""What somebody outside wants of an agent, and how that enters the journal."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from agents import Agent, Pipeline, Tool, UserMessage, well_formed
from delegation import SessionId, SessionRecord
from delegation.events import MessageReceived, Said, SessionOpened
from orchestrator.budget_scope import current_grants
from orchestrator.services import House

NOTHING: Final[Mapping[str, str]] = {}


@attrs.frozen(kw_only=True)
class Asked:
    """One message to an agent, with all that goes with it."""

    agent: Agent[Any]
    message: UserMessage | None
    """None goes on with the last thing in the history: what a tool answered."""
    context: Mapping[str, str] = NOTHING
    """Where it comes from, by the names of `delegation.session_context`."""
    instructions: str = ""
    """What holds for this turn, besides what the agent is told always."""
    history: tuple[Said, ...] = ()
    """What was said elsewhere before."""
    labels: Mapping[str, str] = NOTHING
    """By what whoever asks knows the session again."""
    tools: tuple[Tool, ...] = ()
    """What whoever asks runs itself."""
    attended: bool = False
    """Somebody is there to be asked for approval meanwhile."""


def message_of(agent: Agent[Any], goal: Any) -> UserMessage:
    """Return what an agent is told to do: text, or of a pipeline whatever it takes."""
    text = agent.as_goal(goal) if isinstance(agent, Pipeline) else goal
    return UserMessage(well_formed(text))


def enter(house: House, asked: Asked, id_: SessionId) -> SessionRecord:
    """Open a session for somebody who asks, and let it have the message."""
    house.book.require_taking()
    agent = asked.agent
    if asked.tools:
        agent = attrs.evolve(agent, tools=(*agent.tools, *asked.tools))
    # Before the first fact: an agent whose model cannot be had leaves no trace.
    house.roster.enter(id_, agent)
    house.book.post(
        SessionOpened(
            id_,
            agent.name,
            agent.budget,
            current_grants(),
            attended=asked.attended,
            history=asked.history,
            labels=asked.labels,
        )
    )
    say(house, asked, id_)
    return house.book.ledger.sessions[id_]


def say(house: House, asked: Asked, id_: SessionId) -> int:
    """Let a session have a message, and return the number of the fact that says so."""
    message = UserMessage("") if asked.message is None else asked.message
    house.book.post(
        MessageReceived(
            id_,
            message.text,
            message.parts,
            message.id,
            asked.context,
            instructions=asked.instructions,
            silent=asked.message is None,
        )
    )
    return house.book.ledger.last_seq
