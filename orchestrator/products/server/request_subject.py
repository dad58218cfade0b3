"""The subject of a request: the session, task or approval that it names."""

from enum import StrEnum
from typing import Final

import attrs

from orchestrator.products.schedule.ports import session_of_name
from orchestrator.products.server.api_call import ApiCall
from orchestrator.products.server.openai.public_ids import COMPLETION, CONVERSATION, RESPONSE


class SubjectKind(StrEnum):
    """The kind of an id in a path."""

    SESSION = "session"
    TASK = "task"
    APPROVAL = "approval"


@attrs.frozen
class Subject:
    """The session, task or approval that a request is about."""

    kind: SubjectKind
    id: str


PARAMETERS: Final = {
    "run": SubjectKind.SESSION,
    "session": SubjectKind.SESSION,
    "response": SubjectKind.SESSION,
    "conversation": SubjectKind.SESSION,
    "completion": SubjectKind.SESSION,
    "job": SubjectKind.SESSION,
    "task": SubjectKind.TASK,
    "approval": SubjectKind.APPROVAL,
}
"""The parameters of paths that are ids, with their kinds."""
PUBLIC_IDS: Final = {"response": RESPONSE, "completion": COMPLETION, "conversation": CONVERSATION}


def subject_of(call: ApiCall) -> Subject | None:
    """Return the subject of a request; None for a list or a new session."""
    for name, kind in PARAMETERS.items():
        if name in call.request.path_params:
            id_ = call.path(name)
            if (public := PUBLIC_IDS.get(name)) is not None:
                id_ = public.session(id_) or ""
            elif name == "job":
                id_ = session_of_name(id_)
            return Subject(kind, id_)
    if call.message is not None:
        run = call.message.run
        return None if run is None else Subject(SubjectKind.SESSION, run)
    if call.ids.companion is not None:
        return Subject(SubjectKind.SESSION, call.ids.companion)
    if call.operation.takes_idempotency_key:
        id_ = call.ids.session_from_key() or ""
        return Subject(SubjectKind.SESSION, id_) if id_ else None
    return None
