"""Responses: stored, continued, in the background, and resumable as a stream."""
