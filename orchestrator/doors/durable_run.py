"""Durable runs: a call finds the run that a crash interrupted by its agent and its goal.

The program is started again, asks the same again, and the run goes on from its last step, as the
children of a pipeline do. So the id of such a run is made of what was asked, and of how often.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from agents import Agent, Part, UserMessage
from delegation import SessionId
from orchestrator.doors.inbound import goal_message
from orchestrator.doors.one_shot import (
    Run,
    inbound_run,
    open_one_turn,
    resume_once,
    take_only_turn,
)
from orchestrator.errors import NotInterruptedError
from orchestrator.services import Services

LOOKED_AT: Final = 16
"""So many of the newest equal runs may be interrupted at once; each that is looked at is read."""


class DurableIds:
    """The ids of equal runs: the first is 1."""

    def __init__(self, agent: Agent[Any], message: UserMessage) -> None:
        digest = hashlib.blake2b(digest_size=16)
        for part in (agent.name, message.text, *_texts(message.parts)):
            # With its length: no two lists of texts are the same bytes.
            data = part.encode(errors="surrogatepass")
            digest.update(b"%d:%b" % (len(data), data))
        for it in message.parts:
            digest.update(b"%d:%b" % (len(it.data), it.data))
        self._digest = digest

    @classmethod
    def of_goal(cls, agent: Agent[Any], goal: Any) -> "DurableIds":
        """Return the ids of runs of an agent on a goal without files."""
        return cls(agent, goal_message(agent, goal))

    def __getitem__(self, number: int) -> SessionId:
        digest = self._digest.copy()
        digest.update(b"#%d" % number)
        return SessionId(f"r_{digest.hexdigest()[:16]}")

    def first_free(self, is_known: Callable[[SessionId], bool]) -> int:
        """Return the first number that no run has. Numbers have no gaps, so few are looked up."""
        above = 1
        while is_known(self[above]):
            above *= 2
        below = above // 2
        while above - below > 1:
            middle = (above + below) // 2
            if is_known(self[middle]):
                below = middle
            else:
                above = middle
        return above

    def newest(self, is_known: Callable[[SessionId], bool]) -> Iterator[SessionId]:
        """Yield the ids of the newest runs, of which some may be interrupted, oldest first."""
        free = self.first_free(is_known)
        return (self[number] for number in range(max(1, free - LOOKED_AT), free))


async def run_durably(
    services: Services,
    agent: Agent[Any],
    goal: Any,
    parts: tuple[Part, ...],
    *,
    attended: bool,
    deps: object,
    is_elsewhere: Callable[[SessionId], Awaitable[bool]],
) -> Run[Any]:
    """Go on with an interrupted run of the same agent and goal, or begin one.

    Args:
        services: the parts of the orchestrator.
        agent: the agent to run.
        goal: the goal.
        parts: images and files that go with the goal.
        attended: a person answers approval questions.
        deps: what the program gives to its tools and instructions.
        is_elsewhere: tells whether another process has a run of this id.
    """
    request = await inbound_run(
        services, agent, goal, parts, attended=attended, deps=deps
    )
    assert request.message is not None, "a run has a goal"
    ids, known = DurableIds(agent, request.message), services.read.session_ids
    for earlier in ids.newest(known.__contains__):
        try:
            return await resume_once(services, agent, earlier, deps=deps)
        except NotInterruptedError:
            continue
    number = ids.first_free(known.__contains__)
    while await is_elsewhere(ids[number]):
        number += 1
    # Another call may have taken it meanwhile; from here on no checkpoint.
    while ids[number] in known:
        number += 1
    session = open_one_turn(services, request, ids[number])
    end = await take_only_turn(services, session)
    return Run(
        id=session.id,
        agent=agent,
        outcome=end.outcome,
        tree=session.tree,
        error=end.error,
    )


def _texts(parts: tuple[Part, ...]) -> list[str]:
    return [text for it in parts for text in (it.media_type, it.url, it.name)]
