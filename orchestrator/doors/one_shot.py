"""One goal, one answer: a session that ends with its only turn.

Whoever asks waits inside the call. There is nobody to tell anything afterwards, so everything
that is delegated is joined.
"""

from typing import Any, Final, Generic, TypeVar

import attrs

from agents import (
    Agent,
    Part,
    Pipeline,
    Usage,
    UserMessage,
    read_output,
    well_formed,
)
from delegation import DeliveryCapability, Outcome, SessionId, Tree
from delegation.events import MessageReceived, SessionOpened
from delegation.session_context import session_strings
from orchestrator.budgets import current_grants
from orchestrator.errors import RunFailedError
from orchestrator.house import House
from orchestrator.performing import performing_nothing

OutputT_co = TypeVar("OutputT_co", covariant=True)

CAPABILITY: Final = DeliveryCapability.NONE


@attrs.frozen(kw_only=True)
class Run(Generic[OutputT_co]):
    """A goal that was worked on, and what came of it."""

    id: SessionId
    agent: Agent[OutputT_co]
    outcome: Outcome
    tree: Tree

    @property
    def output(self) -> OutputT_co:
        """The final answer, as the type that the agent promises.

        Raises:
            RunFailedError: there is none, because the run did not succeed.
        """
        if not self.outcome.succeeded:
            raise RunFailedError(f"/{self.agent.name}", self.outcome)
        return read_output(self.agent.output, self.outcome.output)

    @property
    def usage(self) -> Usage:
        """What the whole tree has used."""
        return self.tree.total


async def run_once(
    house: House,
    agent: Agent[Any],
    goal: Any,
    parts: tuple[Part, ...],
    *,
    attended: bool = False,
) -> Run[Any]:
    """Run an agent on a goal, and return when its whole tree has ended."""
    house.book.require_taking()
    # Somebody who asks a model says something; a pipeline may take any value.
    text = agent.as_goal(goal) if isinstance(agent, Pipeline) else goal
    message = UserMessage(well_formed(text), parts)
    id_ = house.new_session_id()
    house.roster.enter(id_, agent)
    house.book.post(
        SessionOpened(
            id_, agent.name, agent.budget, current_grants(), attended=attended
        )
    )
    house.book.post(
        MessageReceived(id_, message.text, message.parts, message.id, session_strings())
    )
    session = house.book.ledger.sessions[id_]
    house.turns.begin(session, CAPABILITY)
    try:
        with performing_nothing():
            outcome = await house.turns.take(session)
    finally:
        house.roster.leave(id_)
    return Run(id=id_, agent=agent, outcome=outcome, tree=session.tree)
