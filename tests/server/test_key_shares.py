"""The keys of a server share a provider that takes few calls at once."""

from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from orchestrator.agents import Agent, AssistantMessage, ModelRequest
from orchestrator.models import Limiter, with_rate_limit
from tests.server.test_limits import Limited, limited


class SlowModel:
    """Takes a second for each answer, and notes the goals in the order of its calls."""

    name = "slow"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        self.asked.append(request.transcript[0].text)
        await trio.sleep(1)
        return AssistantMessage("ok")


async def begin(server: Limited, key: dict[str, str], goal: str) -> None:
    body = {"agent": "worker", "input": goal}
    (await server.http.post("/v1/runs", json=body, headers=key)).raise_for_status()


async def asked_by(folder: Path, owners: tuple[str, str], share: float) -> list[str]:
    """Return the first goals of two keys, which both have many runs."""
    slow = SlowModel()
    agent = Agent("worker", model=with_rate_limit(slow, Limiter(in_flight=1)))
    async with limited(agent, folder=folder) as server:
        one = server.key("one", owner=owners[0])
        two = server.key("two", owner=owners[1], share=share)
        await begin(server, one, "first")
        await wait_all_tasks_blocked()
        for key, goal in ((one, "one"), (two, "two")):
            for _ in range(12):
                await begin(server, key, goal)
        await wait_all_tasks_blocked()
        await server.wait_idle()
    return slow.asked[1:13]


async def test_two_keys_of_one_owner_have_equal_parts(tmp_path: Path) -> None:
    assert (await asked_by(tmp_path, ("ann", "ann"), 1.0)).count("two") == 6


async def test_the_key_with_a_larger_share_has_a_larger_part(tmp_path: Path) -> None:
    assert (await asked_by(tmp_path, ("ann", "ann"), 3.0)).count("two") == 9


async def test_the_share_of_a_key_counts_among_owners_too(tmp_path: Path) -> None:
    assert (await asked_by(tmp_path, ("ann", "bob"), 2.0)).count("two") == 8
