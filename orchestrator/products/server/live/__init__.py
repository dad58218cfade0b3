"""Live streams for clients: facts, and text as agents write it."""
