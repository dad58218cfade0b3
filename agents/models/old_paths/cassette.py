"""Moved to `agents.models.wrappers.cassette`."""

from agents.models.wrappers.cassette import RecordingModel, ReplayModel

__all__ = ["RecordingModel", "ReplayModel"]
