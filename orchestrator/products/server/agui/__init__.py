"""AG-UI 1.0: an agent answers a web front end with a stream of events."""
