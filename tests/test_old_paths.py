"""Import paths that version 0.1 documented, and that moved since."""

from importlib import import_module

import pytest

MOVED = {
    "agents.models.cassette": "agents.models.wrappers.cassette",
    "agents.models.fallback": "agents.models.wrappers.fallback",
    "agents.models.limiter": "agents.models.wrappers.rate_limit",
    "agents.models.named": "agents.models.registry",
    "agents.models.prices": "agents.models.wrappers.prices",
    "agents.models.quote": "agents.models.usage_bound",
    "agents.models.retry": "agents.models.wrappers.retry",
    "agents.tools.results": "agents.tools.result_text",
    "orchestrator.control_client": "orchestrator.control.client",
    "orchestrator.replaying": "orchestrator.replay.run",
}


@pytest.mark.parametrize("old", MOVED)
def test_a_documented_import_path_of_the_first_version_works(old: str) -> None:
    before, now = import_module(old), import_module(MOVED[old])

    assert before.__all__
    assert all(getattr(before, name) is getattr(now, name) for name in before.__all__)
