"""The journal: its ports, its writer, its readers, and the backends that store it."""
