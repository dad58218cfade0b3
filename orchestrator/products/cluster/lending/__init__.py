"""How the writer of a journal lends tool calls to workers, and stays the only one that decides."""
