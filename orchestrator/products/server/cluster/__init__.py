"""Several servers with the same journals: each journal has one writer, which gets its requests."""
