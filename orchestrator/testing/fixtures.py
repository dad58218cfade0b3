"""The fixture `harness`, for pytest-trio: `from orchestrator.testing.fixtures import harness`.

It is a module of its own: the rest of the kit needs no pytest.
"""

from collections.abc import Generator

import pytest

from orchestrator.testing.harness import Harness


def _checked_harness() -> Generator[Harness]:
    """Give a test a harness; when the test is over, its journal must obey every law."""
    harness = Harness()
    yield harness
    harness.assert_laws()


harness = pytest.fixture(_checked_harness, name="harness")
