"""How a run shows its progress: a live tree, log lines, or NDJSON."""
