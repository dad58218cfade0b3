"""The fixture `house`, for pytest-trio: `from orchestrator.testing.fixtures import house`.

It is a module of its own, so that whoever uses the rest of the kit needs no pytest.
"""

from collections.abc import Generator

import pytest

from orchestrator.testing.harness import TrialHouse


@pytest.fixture
def house() -> Generator[TrialHouse]:
    """Give a test a house; when the test is over, its journal must obey every law."""
    trial = TrialHouse()
    yield trial
    trial.assert_laws()
