"""Who may come in, and with what."""

import pytest

from tests.kit import worker
from tests.server.kit import serving

pytestmark = pytest.mark.realtime


async def test_whoever_has_no_token_is_told_how_to_send_one() -> None:
    async with serving(worker()) as served:
        answer = await served.http.get(
            "/v1/models", headers={"authorization": "Bearer nonsense"}
        )

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert "Authorization: Bearer" in answer.json()["error"]["message"]


async def test_every_agent_is_a_model() -> None:
    async with serving(worker("one"), worker("two")) as served:
        models = await served.openai.models.list()

    assert [model.id for model in models.data] == ["one", "two"]
