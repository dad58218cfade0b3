"""The limits of delegation. Each is its own number, and 0 means none at all."""

from typing import Final

import attrs

from orchestrator.agents import DefinitionError

DEEPEST: Final = 250
"""On Python 3.11 a cancellation that crosses some 330 nested nurseries ends trio."""


@attrs.frozen(kw_only=True)
class Rules:
    """How far delegation may go, and how much of it at once.

    A request over a limit of kind is refused, and the model reads why. A task over a limit of
    slots waits: parents take turns, and the tasks of each keep their order.
    """

    depth: int = 10
    """Kind: how many levels of tasks there may be below a session."""
    children_per_call: int = 100
    """Kind: how many tasks one call of `delegate_task` may request."""
    live_children: int | None = None
    """Slots: how many tasks of one parent may run at once."""
    live_tasks: int | None = 1_000
    """Slots: how many tasks of one tree may work at once, without parents that wait."""
    detached: int | None = 100
    """Slots: how many tasks of one session may run in the background at once."""
    queue: int = 10_000
    """How many tasks of one tree may wait for a slot; with 0, a request that finds none free is
    refused. Tasks that wait for their dependencies do not count."""
    processes: int = 300
    """Kind: how many commands of one session may run in the background at once."""

    def __attrs_post_init__(self) -> None:
        for rule, number in attrs.asdict(self).items():
            try:
                is_negative = number is not None and number < 0
            except TypeError:
                raise DefinitionError(f"Rules({rule}={number!r}) is not a number") from None
            if is_negative:
                raise DefinitionError(f"Rules({rule}={number}) makes no sense")
        if self.depth > DEEPEST:
            raise DefinitionError(
                f"Rules(depth={self.depth}) is deeper than the {DEEPEST} levels that a"
                " cancellation can cross"
            )
