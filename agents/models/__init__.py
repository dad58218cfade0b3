"""Models: the port, and one leaf a provider."""
