"""The sandbox of commands: the value `Sandbox`, and the backends that enforce it."""
