"""Import paths that version 0.1 documented, and that moved since."""

from importlib import import_module

import pytest

MOVED = {
    "orchestrator.agents.models.cassette": "orchestrator.agents.models.wrappers.cassette",
    "orchestrator.agents.models.fallback": "orchestrator.agents.models.wrappers.fallback",
    "orchestrator.agents.models.limiter": "orchestrator.agents.models.wrappers.rate_limit",
    "orchestrator.agents.models.named": "orchestrator.agents.models.registry",
    "orchestrator.agents.models.prices": "orchestrator.agents.models.wrappers.prices",
    "orchestrator.agents.models.quote": "orchestrator.agents.models.usage_bound",
    "orchestrator.agents.models.retry": "orchestrator.agents.models.wrappers.retry",
    "orchestrator.agents.tools.results": "orchestrator.agents.tools.result_text",
    "orchestrator.control_client": "orchestrator.kernel.control.client",
    "orchestrator.replaying": "orchestrator.products.history.replay.run",
}


@pytest.mark.parametrize("old", MOVED)
def test_a_documented_import_path_of_the_first_version_works(old: str) -> None:
    before, now = import_module(old), import_module(MOVED[old])

    assert before.__all__
    assert all(getattr(before, name) is getattr(now, name) for name in before.__all__)
