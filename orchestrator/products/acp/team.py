"""The methods of the Agent Client Protocol for a team, and the loop that answers an editor."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

from orchestrator.agents import Agent, DefinitionError, raising_one_error
from orchestrator.delegation import SessionId
from orchestrator.ports.journals import AuditEvent, Journals, SessionSummary, local_actor
from orchestrator.ports.sessions import Orchestrator
from orchestrator.products.acp import history, schema
from orchestrator.products.acp.connection import Method, open_connection
from orchestrator.products.acp.holder import Holder, OpenOrchestrator
from orchestrator.products.acp.open_sessions import OpenSessions
from orchestrator.products.acp.session_agent import options_of, with_option, with_servers
from orchestrator.version import VERSION

ListRuns: TypeAlias = Callable[[], Sequence[SessionSummary]]
"""Reads the newest runs of all journals; blocking."""
NOTHING: Final = schema.Supported()
"""The empty object, which answers a request without a result."""


@attrs.frozen(kw_only=True)
class Served:
    """The agent and the journals of a process that serves a team."""

    agent: Agent[Any]
    journals: Journals
    open_orchestrator: OpenOrchestrator
    list_runs: ListRuns
    orchestrators: list[Orchestrator]
    """The open orchestrators, which a signal drains."""
    end_wait_on_signal: Callable[[], AbstractContextManager[None]] = nullcontext
    """Ends the wait for messages when a signal comes."""
    wait_drained: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    """Waits for running work, if a signal came."""


class Team:
    """Answers the requests of one editor."""

    def __init__(self, served: Served, holder: Holder, sessions: OpenSessions) -> None:
        self._served = served
        self._holder = holder
        self._sessions = sessions

    @property
    def methods(self) -> Mapping[str, Method]:
        """The methods that the editor may call."""
        return {
            "initialize": Method(schema.Initialize, self._initialize),
            "session/new": Method(schema.NewSession, self._new),
            "session/load": Method(schema.OldSession, partial(self._load, replays=True)),
            "session/resume": Method(schema.OldSession, partial(self._load, replays=False)),
            "session/list": Method(schema.ListSessions, self._list),
            "session/prompt": Method(schema.Prompt, self._prompt, self._cancel),
            "session/cancel": Method(schema.OneSession, self._cancel),
            "session/close": Method(schema.OneSession, self._close),
            "session/delete": Method(schema.OneSession, self._delete),
            "session/set_config_option": Method(schema.SetConfigOption, self._set_option),
        }

    async def _initialize(self, request: schema.Initialize) -> schema.Initialized:
        await trio.lowlevel.checkpoint()
        self._sessions.knows_subagents = request.client_capabilities.subagents is not None
        return schema.Initialized(
            protocol_version=schema.PROTOCOL,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True),
                session_capabilities=schema.SessionCapabilities(
                    list=NOTHING, delete=NOTHING, resume=NOTHING, close=NOTHING
                ),
            ),
            agent_info=schema.Implementation(
                name="delegation-orchestrator", title=self._served.agent.name, version=VERSION
            ),
        )

    async def _new(self, request: schema.NewSession) -> schema.OpenedSession:
        cwd, agent = self._place(request.cwd, request.mcp_servers)
        orchestrator = await self._holder.orchestrator_of(None)
        opened = await self._sessions.open(orchestrator, agent, None, cwd, replays=False)
        return schema.OpenedSession(
            session_id=opened.conversation.session.id, config_options=options_of(agent)
        )

    async def _load(self, request: schema.OldSession, *, replays: bool) -> schema.OpenedSession:
        cwd, agent = self._place(request.cwd, request.mcp_servers)
        id_ = SessionId(request.session_id)
        await self._sessions.leave(id_)
        orchestrator = await self._holder.orchestrator_of(id_)
        await self._sessions.open(orchestrator, agent, id_, cwd, replays=replays)
        return schema.OpenedSession(config_options=options_of(agent))

    def _place(self, cwd: str, servers: Sequence[schema.ClientServer]) -> tuple[Path, Agent[Any]]:
        """Return the folder of a session, and its agent."""
        folder = Path(cwd)
        if not folder.is_absolute() or not folder.is_dir():
            raise DefinitionError(f"cwd is {cwd!r}; it must be the absolute path of a folder")
        return folder, with_servers(self._served.agent, servers)

    async def _list(self, request: schema.ListSessions) -> schema.SessionPage:
        def read() -> Sequence[SessionSummary]:
            return self._served.list_runs() if self._served.journals.names() else ()

        return history.list_page(await trio.to_thread.run_sync(read), request)

    async def _prompt(self, request: schema.Prompt) -> schema.PromptEnded:
        # Without a checkpoint before: a cancellation that follows finds the prompt.
        return await self._sessions[request.session_id].conversation.prompt(request.prompt)

    async def _cancel(self, request: schema.OneSession | schema.Prompt) -> None:
        id_ = request.session_id
        for opened in self._sessions:
            conversation = opened.conversation
            if id_ == conversation.session.id:
                await conversation.cancel()
            elif any(it == id_ for it in conversation.session.tree):
                await conversation.orchestrator.cancel(id_)
        await trio.lowlevel.checkpoint()

    async def _close(self, request: schema.OneSession) -> schema.Supported:
        await self._sessions[request.session_id].conversation.cancel()
        await self._sessions.leave(request.session_id)
        return NOTHING

    async def _delete(self, request: schema.OneSession) -> schema.Supported:
        id_ = SessionId(request.session_id)
        if id_ in self._sessions:
            await self._close(request)
        orchestrator = await self._holder.orchestrator_of(id_)
        by = AuditEvent(
            actor=local_actor(os.getuid()), action="delete", target=id_, peer=f"pid {os.getpid()}"
        )
        await orchestrator.delete_run(id_, by=by)
        return NOTHING

    async def _set_option(self, request: schema.SetConfigOption) -> schema.OpenedSession:
        await trio.lowlevel.checkpoint()
        opened = self._sessions[request.session_id]
        agent = with_option(opened.agent, request.config_id, request.value)
        opened.conversation.change_agent(agent)
        opened.agent = agent
        return schema.OpenedSession(config_options=options_of(agent))


async def serve_editor(
    served: Served, stdin: trio.abc.ReceiveStream, stdout: trio.abc.SendStream
) -> None:
    """Answer the messages of an editor, until they end."""
    async with open_connection(stdout) as connection:
        with raising_one_error():
            async with trio.open_nursery() as holders:
                holder = Holder(
                    served.journals, served.open_orchestrator, served.orchestrators, holders
                )
                # Sessions end before the orchestrators do.
                async with trio.open_nursery() as nursery:
                    team = Team(served, holder, OpenSessions(connection, nursery))
                    with served.end_wait_on_signal():
                        await connection.read(stdin, team.methods, nursery)
                    await served.wait_drained()
                    nursery.cancel_scope.cancel(reason="the editor has left")
                holders.cancel_scope.cancel(reason="the editor has left")
