"""Import paths of version 0.1: on the `__path__` of the package above, so that they work."""
