"""The Model Context Protocol: servers that agents use, and agents as tools of other programs."""
