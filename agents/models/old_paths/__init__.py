"""Import paths of version 0.1, which keep working: found through the `__path__` of the package above."""
