"""The fixture `house`, for pytest-trio: `from orchestrator.testing.fixtures import house`.

It has a module of its own, so that the rest of the package needs no pytest.
"""

from collections.abc import Generator

import pytest

from orchestrator.testing.harness import TrialHouse


@pytest.fixture
def house() -> Generator[TrialHouse]:
    """Give a test a `TrialHouse`; at the end of the test its journal must obey every law."""
    harness = TrialHouse()
    yield harness
    harness.assert_laws()
