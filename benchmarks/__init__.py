"""The overhead of a delegation, as ratios that are measured in one run.

Machines are noisy, so no figure stands alone: each is set against a floor that does the same calls
with nothing but trio or SQLite, measured in turn with it. Nothing here passes or fails.
"""
