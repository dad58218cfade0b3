"""What commands may touch, and how that is enforced: the value `Sandbox`, and its backends."""
