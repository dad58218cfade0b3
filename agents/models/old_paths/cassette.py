"""Moved to `orchestrator.agents.models.wrappers.cassette`."""

from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel

__all__ = ["RecordingModel", "ReplayModel"]
