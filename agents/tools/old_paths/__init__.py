"""Import paths of version 0.1, which keep working: the package above adds this to its path."""
