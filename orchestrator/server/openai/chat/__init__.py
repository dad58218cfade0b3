"""Chat completions, as OpenAI's clients speak them: an answer for whoever waits."""
