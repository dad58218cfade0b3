"""OpenAI's protocols: chat completions and responses."""
