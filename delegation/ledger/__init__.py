"""The state of all sessions and tasks: a fold of the journal's facts, and the due work."""
