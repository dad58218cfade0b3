"""Recorded runs: replay one with the code of today, and compare the two."""

from orchestrator.products.history.replay.compare import ReplayResult
from orchestrator.products.history.replay.record import ReplayError
from orchestrator.products.history.replay.run import replay, replay_sync

__all__ = ["ReplayError", "ReplayResult", "replay", "replay_sync"]
