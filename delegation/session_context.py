"""Context variables of the session, and whether its door can deliver after this turn.

They are for code that has no origin, such as a tool that needs the id of its chat. Every trio task
and every worker thread has its own copy, taken from its starter, so concurrent turns never see each
other's values. A value that must outlive the turn leaves as `session_strings()`.

A string variable is in one of three states:

* never set   the environment of the process answers, then the caller's default
* set         it answers
* cleared     it is set to "": the environment does not answer, it may describe another session
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Final, TypedDict, Unpack


class SessionVars(TypedDict, total=False):
    """The variables. None keeps the outer value."""

    platform: str | None
    source: str | None
    chat_id: str | None
    chat_name: str | None
    thread_id: str | None
    user_id: str | None
    user_name: str | None
    session_key: str | None
    """The routing key of the session's answers."""
    session_id: str | None
    message_id: str | None
    """The message that started this turn, to reply to."""
    cwd: str | None
    cron_auto_deliver_platform: str | None
    cron_auto_deliver_chat_id: str | None
    cron_auto_deliver_thread_id: str | None
    traceparent: str | None
    """The span of the caller, as the header `traceparent` of W3C Trace Context writes it."""
    async_delivery: bool | None
    """Whether the door can deliver after the turn; never set means yes."""


_SHORT: Final[Mapping[str, str]] = {
    "ORCHESTRATOR_SESSION_PLATFORM": "platform",
    "ORCHESTRATOR_SESSION_SOURCE": "source",
    "ORCHESTRATOR_SESSION_CHAT_ID": "chat_id",
    "ORCHESTRATOR_SESSION_CHAT_NAME": "chat_name",
    "ORCHESTRATOR_SESSION_THREAD_ID": "thread_id",
    "ORCHESTRATOR_SESSION_USER_ID": "user_id",
    "ORCHESTRATOR_SESSION_USER_NAME": "user_name",
    "ORCHESTRATOR_SESSION_KEY": "session_key",
    "ORCHESTRATOR_SESSION_ID": "session_id",
    "ORCHESTRATOR_SESSION_MESSAGE_ID": "message_id",
    "ORCHESTRATOR_SESSION_CWD": "cwd",
    "ORCHESTRATOR_CRON_AUTO_DELIVER_PLATFORM": "cron_auto_deliver_platform",
    "ORCHESTRATOR_CRON_AUTO_DELIVER_CHAT_ID": "cron_auto_deliver_chat_id",
    "ORCHESTRATOR_CRON_AUTO_DELIVER_THREAD_ID": "cron_auto_deliver_thread_id",
    # Not `async_delivery`: it is not a string, and the environment does not know the door of a
    # turn. Not `traceparent`: commands get the span of the call that runs them.
}
_KNOWN: Final = frozenset(SessionVars.__annotations__)
# The orchestrator itself sets the id of the session, for every turn.
_CLEARED: Final[Mapping[str, str]] = {it: "" for it in _SHORT.values() if it != "session_id"}
_NEVER_SET: Final[Mapping[str, object]] = {}
NO_STRINGS: Final[Mapping[str, str]] = {}

# One variable for all: to bind is one `set`, to restore one `reset`. The mapping is replaced and
# never changed, since contexts share it. A key that is missing was never set.
_bound: ContextVar[Mapping[str, object]] = ContextVar("session", default=_NEVER_SET)


class _Binding:
    """The context manager of `bind_session`, by hand: `@contextmanager` would double its cost."""

    __slots__ = ("_given", "_token")

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given

    def __enter__(self) -> None:
        self._token = _bound.set({**_bound.get(), **self._given})

    def __exit__(self, *exc: object) -> None:
        _bound.reset(self._token)


def bind_session(**given: Unpack[SessionVars]) -> AbstractContextManager[None, None]:
    """Bind variables for the length of a `with`, and restore them exactly.

    Bindings nest. The result of `session_strings()` is bound again with
    `bind_session(**strings, async_delivery=...)`.
    """
    if not _KNOWN.issuperset(given):
        unknown = ", ".join(sorted(given.keys() - _KNOWN))
        msg = f"no such session variable: {unknown}; there are {', '.join(sorted(_KNOWN))}"
        raise TypeError(msg)
    if None in given.values():
        return _Binding({name: x for name, x in given.items() if x is not None})
    return _Binding(given)


def door_context(**known: str) -> dict[str, str]:
    """Return all string variables for the messages of a door: "" for each that it does not know.

    The environment of a process that serves many sessions may describe another session.
    """
    return {**_CLEARED, **known}


def is_session_bound(session_id: str, strings: Mapping[str, str], *, async_delivery: bool) -> bool:
    """Return whether the variables of a session are bound already, as a child inherits them."""
    bound = _bound.get()
    return (
        bound.get("session_id") == session_id
        and bound.get("async_delivery") is async_delivery
        and (not strings or strings.items() <= bound.items())
    )


def session_strings() -> Mapping[str, str]:
    """Return the strings that are set and not empty, by the names that `bind_session` takes."""
    bound = _bound.get()
    if not bound:
        return NO_STRINGS
    return {name: value for name, value in bound.items() if isinstance(value, str) and value}


def session_environ() -> Mapping[str, str]:
    """Return the variables that are set, by their long names, for the environment of a process."""
    bound = _bound.get()
    return {name: str(bound[short]) for name, short in _SHORT.items() if short in bound}


def get_session_env(name: str, default: str = "") -> str:
    """Return a variable by its long name, such as `ORCHESTRATOR_SESSION_CHAT_ID`.

    A variable that is set answers, even with "". Otherwise, and for any other name, this is
    `os.getenv`.
    """
    bound = _bound.get()
    short = _SHORT.get(name, "")
    return str(bound[short]) if short in bound else os.getenv(name, default)


def async_delivery_supported() -> bool:
    """Return whether the door can deliver after this turn: yes, unless it was denied."""
    return bool(_bound.get().get("async_delivery", True))


def set_session_vars(  # noqa: PLR0917 (callers may pass them in this order)
    platform: str = "",
    source: str = "",
    chat_id: str = "",
    chat_name: str = "",
    thread_id: str = "",
    user_id: str = "",
    user_name: str = "",
    session_key: str = "",
    session_id: str = "",
    message_id: str = "",
    cwd: str = "",
    async_delivery: bool = True,
) -> list[Token[Mapping[str, object]]]:
    """Set every variable of a session; those not given are cleared. Cron's own three stay.

    This does not nest: `clear_session_vars` clears, and restores nothing. Prefer `bind_session`.
    """
    token = _bound.set(
        {
            **_bound.get(),
            "platform": platform,
            "source": source,
            "chat_id": chat_id,
            "chat_name": chat_name,
            "thread_id": thread_id,
            "user_id": user_id,
            "user_name": user_name,
            "session_key": session_key,
            "session_id": session_id,
            "message_id": message_id,
            "cwd": cwd,
            "traceparent": "",
            "async_delivery": async_delivery,
        }
    )
    return [token]


def clear_session_vars(tokens: object) -> None:
    """Clear the variables of `set_session_vars`. The tokens are ignored: callers have them.

    Delivery becomes never set: the door of one turn must not decide for the next.
    """
    set_session_vars()
    _bound.set({name: x for name, x in _bound.get().items() if name != "async_delivery"})


def reset_session_vars() -> None:
    """Make every variable never set, cron's too: for a trio task that inherits wrong ones."""
    _bound.set(_NEVER_SET)


def set_current_session_id(session_id: str) -> None:
    """Set the session id of this trio task, and of the process where no task has its own.

    For a process with one session at a time, such as a command line that starts the next one.
    """
    os.environ["ORCHESTRATOR_SESSION_ID"] = session_id
    _bound.set({**_bound.get(), "session_id": session_id})
