"""The ids of the protocols' objects: the id of a session with the prefix of its protocol."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import attrs
import trio

from orchestrator.delegation import SessionId, SessionRecord
from orchestrator.ports.errors import UnknownIdError
from orchestrator.products.server.api.lookup import find_run
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.transport.errors import HttpError

_SUFFIX: Final = re.compile(r"[0-9a-f]{16}")


@attrs.frozen
class PublicId:
    """A kind of ids."""

    prefix: str

    def of(self, session: SessionRecord) -> str:
        return f"{self.prefix}{id_suffix(session)}"

    def session(self, id_: str) -> SessionId | None:
        """Return the session of an id; None if the id is not of this kind."""
        suffix = id_.removeprefix(self.prefix)
        if suffix == id_ or not _SUFFIX.fullmatch(suffix):
            return None
        return SessionId(f"r_{suffix}")


COMPLETION: Final = PublicId("chatcmpl-")
"""The ids of chat completions, made from their first sessions."""
MESSAGE: Final = PublicId("msg_")
"""The ids of Anthropic's messages."""
RESPONSE: Final = PublicId("resp_")
CONVERSATION: Final = PublicId("conv_")


def id_suffix(session: SessionRecord) -> str:
    """Return the part that the id of an object shares with the ids of its items."""
    return session.id.removeprefix("r_")


async def find_object(
    call: ApiCall,
    kind: PublicId,
    id_: str,
    is_one: Callable[[SessionRecord], bool],
    name: str,
    *,
    param: str | None = None,
    find: Callable[[ApiCall, SessionId], Awaitable[SessionRecord]] = find_run,
) -> SessionRecord:
    """Return the session of an object, or raise the error that calls it `name`."""
    await trio.lowlevel.checkpoint()
    if (session_id := kind.session(id_)) is not None:
        with suppress(UnknownIdError):
            session = await find(call, session_id)
            if is_one(session):
                return session
    raise HttpError(404, f"there is no {name} {id_!r}", code="not_found", param=param)
