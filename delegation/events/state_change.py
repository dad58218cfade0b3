"""The fact that changes the state of a product in a session."""

from collections.abc import Callable
from typing import ParamSpec

from orchestrator.delegation.events.facts import StateChanged
from orchestrator.delegation.session_state import SessionState, as_json
from orchestrator.delegation.task import SessionId

P = ParamSpec("P")


def change_state(
    session: SessionId, kind: Callable[P, SessionState], /, *args: P.args, **changes: P.kwargs
) -> StateChanged:
    """Return the fact that changes fields of a state: `change_state(id, ChatState, told="")`.

    The type checker knows the fields: they are the parameters of the class.

    Args:
        session: the session.
        kind: the class of the state.
        args: none; a state has named fields alone.
        changes: the fields that get another value.
    """
    state = kind(*args, **changes)
    changed = {name: as_json(getattr(state, name)) for name in changes}
    return StateChanged(session, state.NAME, changed)
