"""The states that products keep in sessions."""

import pytest

from orchestrator.delegation.session_state import SessionState, store_states
from orchestrator.kernel.doors.door_state import DoorState
from orchestrator.products.chat.chat_state import ChatState
from orchestrator.products.chat.pairing_codes import PairedState
from orchestrator.products.mcp.server.calls import McpCallState
from orchestrator.products.schedule.job_run import JobRunState
from orchestrator.products.server.openai.chat.stored import StoredChatState
from orchestrator.products.server.openai.choices import ChoicesState
from orchestrator.products.server.openai.client_tools import ClientToolsState
from orchestrator.products.server.openai.conversations.kept_items import ConversationState
from orchestrator.products.server.openai.responses.response_state import ResponseState
from orchestrator.products.server.request_state import RequestState

STATES: list[type[SessionState]] = [
    *(DoorState, ChatState, PairedState, McpCallState, JobRunState, RequestState),
    *(StoredChatState, ChoicesState, ClientToolsState, ConversationState, ResponseState),
]


@pytest.mark.parametrize("kind", STATES)
def test_a_state_with_its_default_values_is_not_stored(kind: type[SessionState]) -> None:
    assert store_states([kind()]) == {}


def test_names_of_states_differ() -> None:
    assert {*SessionState.__subclasses__()} >= {*STATES}
    assert len({it.NAME for it in STATES}) == len(STATES)
