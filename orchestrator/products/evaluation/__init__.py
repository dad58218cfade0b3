"""Evaluations: cases, scorers, paired statistics, sweeps, and the task that was to blame."""
