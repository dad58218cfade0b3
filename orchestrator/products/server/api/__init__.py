"""The server's own API: runs and their trees, tasks, events, approvals, conversations."""
