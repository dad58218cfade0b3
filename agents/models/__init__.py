"""Models: the port, its providers and wrappers, and the registry that finds a model by name."""
