"""The states of a session: type checkers refuse a field that a state does not have.

It is never run: see `joins.py`.
"""

from typing import assert_type

from orchestrator.delegation import SessionRecord
from orchestrator.delegation.events import change_state
from orchestrator.products.chat.chat_state import ChatState


def read(session: SessionRecord) -> None:
    assert_type(session.state(ChatState).told, str)
    print(session.state(ChatState).tolled)  # type: ignore[attr-defined]  # pyright: ignore


def change(session: SessionRecord) -> None:
    change_state(session.id, ChatState, told="", personality="none")
    change_state(session.id, ChatState, answered={"m_1": None})
    change_state(session.id, ChatState, tolled="")  # type: ignore[call-arg]  # pyright: ignore
    change_state(session.id, ChatState, told=1)  # type: ignore[arg-type]  # pyright: ignore
