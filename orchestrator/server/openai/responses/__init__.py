"""Responses, as OpenAI's clients speak them: stored, gone on with, in the background, resumed."""
