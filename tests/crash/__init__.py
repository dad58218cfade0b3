"""A process that is killed with SIGKILL again and again, and what must be true of it at the end."""
