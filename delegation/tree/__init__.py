"""The executed tree of a session: queries, sums, the critical path, comparison, and views."""
