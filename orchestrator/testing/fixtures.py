"""The fixture `harness`, for pytest-trio: `from orchestrator.testing.fixtures import harness`.

It has its own module, since the rest of `orchestrator.testing` needs no pytest.
"""

from collections.abc import Generator

import pytest

from orchestrator.testing.harness import Harness


def _checked_harness() -> Generator[Harness]:
    """Give a test a harness, and check the laws of its journal after the test."""
    harness = Harness()
    yield harness
    harness.assert_laws()


harness = pytest.fixture(_checked_harness, name="harness")
