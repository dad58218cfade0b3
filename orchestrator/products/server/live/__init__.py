"""What clients read while it happens: facts, and text as agents write it."""
