"""The input of an AG-UI run: the conversation, the client's tools, and answers to interrupts."""

import hashlib
from typing import Annotated, Any, Literal

import msgspec

from orchestrator.delegation import SessionId

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class Body(msgspec.Struct, kw_only=True, rename="camel"):
    """A part of the input; AG-UI has names in camel case."""


class CalledFunction(Body):
    name: str
    arguments: str = ""


class Call(Body):
    """A call of a tool in the conversation."""

    id: str
    function: CalledFunction


class AguiMessage(Body):
    """A message of the conversation."""

    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    id: str = ""
    content: Any = None
    """A text, or a list of parts."""
    tool_calls: list[Call] | None = None
    tool_call_id: str = ""
    subagent_run_id: str | None = None


class Source(Body):
    """The content of a part, or its address."""

    type: str
    value: str = ""
    mime_type: str = ""


class ContentPart(Body):
    """A text, an image or a document in a message."""

    type: str
    text: str = ""
    source: Source | None = None


class FrontendTool(Body):
    """A tool that the client runs itself."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ContextItem(Body):
    """A piece of information about the application."""

    description: str
    value: str


class ResumeEntry(Body):
    """The answer to one interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunInput(Body):
    """The input of a run."""

    thread_id: Id
    run_id: Id
    messages: list[msgspec.Raw] = []
    tools: list[FrontendTool] | None = None
    context: list[ContextItem] | None = None
    state: Any = None
    resume: list[ResumeEntry] | None = None


class _Named(Body):
    """The parts of an input that decide which session it is about."""

    thread_id: Id
    run_id: Id
    resume: list[ResumeEntry] | None = None


def run_key(raw: bytes) -> str | None:
    """Return the key of the run that an input names: the same input finds the same session."""
    if (named := _named(raw)) is None:
        return None
    whole = msgspec.json.encode([named.thread_id, named.run_id])
    return hashlib.sha256(whole).hexdigest()


def resumed_session(raw: bytes) -> SessionId | None:
    """Return the session whose interrupts an input answers."""
    named = _named(raw) if b'"resume"' in raw else None
    entries = None if named is None else named.resume
    return SessionId(interrupt_parts(entries[0].interrupt_id)[0]) if entries else None


def _named(raw: bytes) -> _Named | None:
    try:
        return msgspec.json.decode(raw, type=_Named)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # decoding the body refuses it


def interrupt_id(session: str, approval: str) -> str:
    """Return the id of an interrupt, which any server can find."""
    return f"{session}:{approval}"


def interrupt_parts(id_: str) -> tuple[str, str]:
    """Return the session and the approval of an interrupt."""
    session, _, approval = id_.rpartition(":")
    return session, approval
