"""Legacy completions: a prompt, and the text that follows it."""
