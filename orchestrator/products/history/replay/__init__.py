"""Runs a recorded run again, compares the two, or forks one at a task."""
