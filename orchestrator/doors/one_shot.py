"""One goal, one answer: a session without a door that ends with its only turn.

The caller waits inside the call. Nothing can be delivered afterwards, so every task is joined.
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
    """A goal, its outcome, and the tree of the tasks that it took."""

    id: SessionId
    agent: Agent[OutputT_co]
    outcome: Outcome
    tree: Tree

    @property
    def output(self) -> OutputT_co:
        """The final answer, as the agent's output type.

        Raises:
            RunFailedError: the run did not succeed.
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
    """Run an agent on a goal, and return when its whole tree is settled."""
    request = InboundRequest(
        agent=agent,
        message=attrs.evolve(goal_message(agent, goal), parts=parts),
        context=session_strings(),
        attended=attended,
    )
    session = open_one_turn(services, request)
    outcome = await take_only_turn(services, session)
    return Run(id=session.id, agent=agent, outcome=outcome, tree=session.tree)


def open_one_turn(
    services: Services, request: InboundRequest, id_: SessionId | None = None
) -> SessionRecord:
    """Open a session without a door, and begin its only turn in the same step.

    No crash can leave a session between the two that another door would take up.
    """
    session = open_inbound_session(services, request, id_)
    services.turns.begin(session, CAPABILITY)
    return session


async def take_only_turn(services: Services, session: SessionRecord) -> Outcome:
    """Run the turn of such a session until it ends. Cancelling this cancels its tree."""
    with outside_pipeline():
        return await services.turns.take(session)
