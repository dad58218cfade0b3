"""A message to an agent from outside, and how it enters the journal."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import attrs
import msgspec
import trio

from orchestrator.agents import (
    Agent,
    DefinitionError,
    Part,
    Pipeline,
    Tool,
    UserMessage,
    is_agent,
    well_formed,
)
from orchestrator.agents.redaction.long_texts import search_ahead, search_tree_ahead, texts_in
from orchestrator.agents.redaction.redactor import LONG_TEXT, Redactor
from orchestrator.delegation import NO_TERMS, AnswerTerms, Grant, SessionId, SessionRecord
from orchestrator.delegation.events import EarlierMessage, MessageReceived
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.delegation.session_state import SessionState, store_states
from orchestrator.kernel.doors.door_state import DoorState
from orchestrator.kernel.doors.lifecycle import NO_STRINGS, open_new_session
from orchestrator.kernel.journal.fact_redaction import without_secrets
from orchestrator.kernel.sessions import Sessions

OPENTELEMETRY: Final = "opentelemetry.trace"
"""The module that a program with active spans has imported."""
MANY_PIECES: Final = 50
"""The search of more messages or files is worth a thread, short as they are."""


class InboundRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One message to an agent, with everything that a door adds to it."""

    agent: Agent[Any]
    message: UserMessage | None
    """None continues after the last message of the history: the result of a client's tool."""
    kind: SessionKind = SessionKind.PROGRAM
    """The kind of the session that it opens."""
    context: Mapping[str, str] = NO_STRINGS
    """The origin of the message, by the names of `orchestrator.delegation.session_context`."""
    instructions: str = ""
    """Instructions for this turn, in addition to the agent's own."""
    history: tuple[EarlierMessage, ...] = ()
    """The messages of a conversation that took place elsewhere."""
    metadata: Mapping[str, str] = NO_STRINGS
    """The notes that the client keeps with the session."""
    states: tuple[SessionState, ...] = ()
    """The states that products keep in the session."""
    language_model: str = ""
    """The name of the model that the agent has in place of its own."""
    owner: str = ""
    """The owner of the session; "" is the operator."""
    tools: tuple[Tool, ...] = ()
    """Tools that the client runs itself."""
    terms: AnswerTerms = NO_TERMS
    """How the client wants the answers."""
    attended: bool = False
    """A person answers approval questions while the caller waits."""
    deps: object = None
    """The values that the program gives to the tools and instructions of the tree."""
    async_delivery: bool = True
    """Whether something can be delivered after the turn that reads it, if its door can."""


def require_agent(value: object) -> None:
    """Raise unless a value is an agent."""
    if not is_agent(value):
        raise DefinitionError(
            f"a {type(value).__name__} is not an agent: give an Agent(...), or make one of a"
            " function with @agent"
        )


def goal_message(agent: Agent[Any], goal: Any) -> UserMessage:
    """Return the first message about a goal: the text itself, or any other value as JSON."""
    require_agent(agent)
    return UserMessage(well_formed(agent.as_goal(goal)))


def open_inbound_session(
    sessions: Sessions,
    request: InboundRequest,
    id_: SessionId | None = None,
    *,
    pushed: bool = False,
) -> SessionRecord:
    """Open a session for a request, and post its message; a webhook may get its replies."""
    id_ = sessions.new_session_id() if id_ is None else id_
    return open_new_session(
        sessions,
        with_client_tools(request.agent, request.tools) if request.tools else request.agent,
        id_,
        kind=request.kind,
        history=request.history,
        metadata=request.metadata,
        states=(*request.states, *door_states(request.language_model, pushed=pushed)),
        owner=request.owner,
        attended=request.attended,
        deps=request.deps,
        first=_message_of(request, id_),
    )


def door_states(language_model: str = "", *, pushed: bool = False) -> tuple[DoorState, ...]:
    """Return the state of a door to store in a session; most sessions do not have one."""
    if not (language_model or pushed):
        return ()
    return (DoorState(language_model=language_model, pushed=pushed),)


def texts_of(request: InboundRequest) -> Iterator[str]:
    """Yield the texts of a request: its message, its instructions, and its history."""
    yield request.instructions
    if request.message is not None:
        yield request.message.text
    for earlier in request.history:
        yield earlier.text
        yield from texts_in([call.arguments for call in earlier.calls])


def is_large(request: InboundRequest) -> bool:
    """Return whether the search of a request for secrets is worth a thread."""
    if len(request.history) > MANY_PIECES:
        return True
    message = request.message
    if message is not None and not (
        message.parts or request.history or request.metadata or request.states
    ):
        return len(message.text) + len(request.instructions) > LONG_TEXT
    texts = chain(texts_of(request), _texts_kept(request))
    return sum(map(len, texts)) > LONG_TEXT or any(
        _are_large(it.parts) for it in _messages_of(request)
    )


async def search_request_ahead(redactor: Redactor, request: InboundRequest) -> None:
    """Search a request for secrets beside the event loop, before it is posted."""
    if not is_large(request):
        return  # noqa: ASYNC910 (there is nothing to search ahead)
    await search_ahead(redactor, chain(texts_of(request), _texts_kept(request)))
    for message in _messages_of(request):
        if message.parts:
            await search_ahead(redactor, _text_files_in(message.parts))
    if request.history:
        await search_tree_ahead(redactor, request.history, without_secrets)
    if request.message is not None:
        await search_parts_ahead(redactor, request.message.parts)


async def search_parts_ahead(redactor: Redactor, parts: tuple[Part, ...]) -> None:
    """Search the files of a message for secrets beside the event loop, before it is posted."""
    await trio.lowlevel.checkpoint()
    if _are_large(parts):
        await search_ahead(redactor, _text_files_in(parts))
        await search_tree_ahead(redactor, parts, without_secrets)


def _texts_kept(request: InboundRequest) -> Iterator[str]:
    """Yield the texts of a request that are stored beside the conversation."""
    yield from request.metadata.values()
    yield from texts_in(store_states(request.states))


def _messages_of(request: InboundRequest) -> Iterator[EarlierMessage | UserMessage]:
    yield from request.history
    if request.message is not None:
        yield request.message


def _are_large(parts: tuple[Part, ...]) -> bool:
    return len(parts) > MANY_PIECES or sum(len(it.data) for it in parts) > LONG_TEXT


def _text_files_in(parts: tuple[Part, ...]) -> Iterator[str]:
    for part in parts:
        with suppress(UnicodeDecodeError):
            yield part.data.decode()


def with_client_tools(agent: Agent[Any], tools: tuple[Tool, ...]) -> Agent[Any]:
    """Return an agent with the tools that the client of a session runs itself."""
    return attrs.evolve(agent, tools=(*agent.tools, *tools)) if tools else agent


def with_language_model(agent: Agent[Any], name: str) -> Agent[Any]:
    """Return an agent with another model, unless the name is empty, or raise `DefinitionError`."""
    if not name:
        return agent
    if isinstance(agent, Pipeline):
        raise DefinitionError(f"{agent.name} is a pipeline, which calls no model")
    return attrs.evolve(agent, model=name)


def post_message(
    sessions: Sessions, request: InboundRequest, id_: SessionId, grants: tuple[Grant, ...] = ()
) -> int:
    """Post the message of a request, and return its number; `grants` also pay for its turn."""
    sessions.facts.post(_message_of(request, id_, grants))
    return sessions.read.records.last_seq


def _message_of(
    request: InboundRequest, id_: SessionId, grants: tuple[Grant, ...] = ()
) -> MessageReceived:
    message = UserMessage("") if request.message is None else request.message
    return MessageReceived(
        id_,
        message.text,
        message.parts,
        message.id,
        request.context,
        grants,
        instructions=request.instructions,
        silent=request.message is None,
        async_delivery=request.async_delivery,
        terms=request.terms,
    )
