"""Chat completions: one turn of an agent, while the client waits."""
