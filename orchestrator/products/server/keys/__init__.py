"""Keys: the rights of clients over HTTP. Only hashes of tokens are stored."""
