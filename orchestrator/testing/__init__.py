"""Tools to test agents: fake and recorded models, faults, crashes, tree assertions and laws.

Only `orchestrator.testing.fixtures`, with the fixture `harness`, imports pytest.
"""

from orchestrator.agents import ScriptedModel
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel
from orchestrator.testing.crashing_journal import CrashedError, CrashingJournal
from orchestrator.testing.faults import DroppingDoor, drop_deliveries, faulty, slow
from orchestrator.testing.harness import Harness, facts
from orchestrator.testing.invariants import assert_laws, laws_of
from orchestrator.testing.models import (
    CountingModel,
    FailingModel,
    GatedModel,
    SpyModel,
    StreamingModel,
)
from orchestrator.testing.scripts import hand_on, recorded
from orchestrator.testing.trees import assert_tree

__all__ = [
    "CountingModel",
    "CrashedError",
    "CrashingJournal",
    "DroppingDoor",
    "FailingModel",
    "GatedModel",
    "Harness",
    "RecordingModel",
    "ReplayModel",
    "ScriptedModel",
    "SpyModel",
    "StreamingModel",
    "assert_laws",
    "assert_tree",
    "drop_deliveries",
    "facts",
    "faulty",
    "hand_on",
    "laws_of",
    "recorded",
    "slow",
]
