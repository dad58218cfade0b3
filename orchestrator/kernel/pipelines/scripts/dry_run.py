"""The dry run of a script: the product that simulates runs returns its figures."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from orchestrator.agents import Agent


class DryRun(msgspec.Struct, frozen=True):
    """The text about simulated runs of a script."""

    text: str
    is_possible: bool
    """Whether a simulated run has ended without an error that all runs have."""


SimulateScript: TypeAlias = Callable[[Agent[Any], str], Awaitable[DryRun]]
"""Simulates the agent of a script with a goal."""
