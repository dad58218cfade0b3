"""Keys: who may do what over HTTP. Only hashes of them are stored, and no restart is needed."""
