"""`orchestrator watch`: a run of another process, live."""
