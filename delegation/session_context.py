"""Task-local session variables, and whether the session of this very turn can be told more later.

They are for code that is handed no origin, such as a tool that asks which chat it answers.
Every task and every worker thread has its own, copied from whoever started it, so turns that
run at the same time never see each other's. What must outlive the turn leaves by value, as
`session_strings()`.

A string variable is in one of three states:

* never set   the environment of the process answers, then the caller's default
* set         it answers
* cleared     it is set to "": the environment is not asked, for it may speak of somebody else
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from typing import Final, TypedDict, Unpack


class SessionVars(TypedDict, total=False):
    """What can be bound. None leaves a variable as it is outside."""

    platform: str | None
    source: str | None
    chat_id: str | None
    chat_name: str | None
    thread_id: str | None
    user_id: str | None
    user_name: str | None
    session_key: str | None
    """Where the answers of this session are routed."""
    session_id: str | None
    message_id: str | None
    """The message that began this turn, for whoever replies to it."""
    cwd: str | None
    cron_auto_deliver_platform: str | None
    cron_auto_deliver_chat_id: str | None
    cron_auto_deliver_thread_id: str | None
    async_delivery: bool | None
    """Whether somebody still listens when the turn has ended; never set means yes."""


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
    # `async_delivery` is no string, and an environment must not answer for a turn's door.
}
_KNOWN: Final = frozenset(SessionVars.__annotations__)
_NEVER_SET: Final[Mapping[str, object]] = {}

# One variable for all: to bind is one `set`, to restore one `reset`. The mapping is replaced and
# never changed, since contexts share it. A key that is missing was never set.
_bound: ContextVar[Mapping[str, object]] = ContextVar("session", default=_NEVER_SET)


class _Binding:
    """What `bind_session` gives; `@contextmanager` alone would cost as much as all of this."""

    __slots__ = ("_given", "_token")

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given

    def __enter__(self) -> None:
        bound = _bound.get()
        # Whoever works for another mostly is where that one is.
        is_there = self._given.items() <= bound.items()
        self._token = _bound.set(bound if is_there else {**bound, **self._given})

    def __exit__(self, *exc: object) -> None:
        _bound.reset(self._token)


def bind_session(**given: Unpack[SessionVars]) -> AbstractContextManager[None, None]:
    """Bind what is given for the length of a `with`, and restore exactly what was there before.

    Bindings nest. What `session_strings()` gave is bound again with
    `bind_session(**strings, async_delivery=...)`.
    """
    if not _KNOWN.issuperset(given):
        unknown = ", ".join(sorted(given.keys() - _KNOWN))
        msg = f"no such session variable: {unknown}; there are {', '.join(sorted(_KNOWN))}"
        raise TypeError(msg)
    if None in given.values():
        return _Binding({name: x for name, x in given.items() if x is not None})
    return _Binding(given)


def session_strings() -> Mapping[str, str]:
    """Return the strings that are set and not empty, by the names that `bind_session` takes."""
    bound = _bound.get().items()
    return {name: value for name, value in bound if isinstance(value, str) and value}


def session_environ() -> Mapping[str, str]:
    """Return what is set by its long names, as a process that is started inherits it."""
    bound = _bound.get()
    return {name: str(bound[short]) for name, short in _SHORT.items() if short in bound}


def get_session_env(name: str, default: str = "") -> str:
    """Return a variable by its long name, such as `ORCHESTRATOR_SESSION_CHAT_ID`.

    What is set answers, even with "". Otherwise, and for any other name, this is `os.getenv`.
    """
    bound = _bound.get()
    short = _SHORT.get(name, "")
    return str(bound[short]) if short in bound else os.getenv(name, default)


def async_delivery_supported() -> bool:
    """Return whether the session can be told more after this turn: yes, unless it was denied."""
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
    """Set every variable of a session; what is not given is cleared. Cron's own three stay.

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
            "async_delivery": async_delivery,
        }
    )
    return [token]


def clear_session_vars(tokens: object) -> None:
    """Clear what `set_session_vars` sets. The tokens are only taken since callers have them.

    Delivery becomes never set: a door that cannot deliver must not speak for the turn after it.
    """
    set_session_vars()
    _bound.set(
        {name: x for name, x in _bound.get().items() if name != "async_delivery"}
    )


def reset_session_vars() -> None:
    """Make every variable never set, cron's too: for a task that inherits from the wrong one."""
    _bound.set(_NEVER_SET)


def set_current_session_id(session_id: str) -> None:
    """Name the session of this task, and of the whole process where no task has named its own.

    For a process with one session at a time: a command line that goes on to the next.
    """
    os.environ["ORCHESTRATOR_SESSION_ID"] = session_id
    _bound.set({**_bound.get(), "session_id": session_id})
