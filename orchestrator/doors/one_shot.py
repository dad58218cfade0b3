"""One goal, one answer: a session that ends with its only turn.

Whoever asks waits inside the call. There is nobody to tell anything afterwards, so everything
that is delegated is joined.
"""

from typing import Any, Final, Generic, TypeVar

import attrs

from agents import Agent, Part, Usage, read_output
from delegation import DeliveryCapability, Outcome, SessionId, SessionRecord, Tree
from delegation.session_context import session_strings
from orchestrator.doors.inbound import (
    InboundRequest,
    goal_message,
    open_inbound_session,
)
from orchestrator.errors import RunFailedError
from orchestrator.pipelines.runner import outside_pipeline
from orchestrator.services import Services

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
    services: Services,
    agent: Agent[Any],
    goal: Any,
    parts: tuple[Part, ...],
    *,
    attended: bool = False,
) -> Run[Any]:
    """Run an agent on a goal, and return when its whole tree has ended."""
    asked = InboundRequest(
        agent=agent,
        message=attrs.evolve(goal_message(agent, goal), parts=parts),
        context=session_strings(),
        attended=attended,
    )
    session = open_inbound_session(services, asked, services.new_session_id())
    begin_only_turn(services, session)
    outcome = await take_only_turn(services, session)
    return Run(id=session.id, agent=agent, outcome=outcome, tree=session.tree)


def begin_only_turn(services: Services, session: SessionRecord) -> None:
    """Begin the turn of a session that nobody can tell anything later."""
    services.turns.begin(session, CAPABILITY)


async def take_only_turn(services: Services, session: SessionRecord) -> Outcome:
    """See the turn of such a session end."""
    try:
        with outside_pipeline():
            return await services.turns.take(session)
    finally:
        services.registry.unregister_session(session.id)
