"""HTTP itself: sockets, access, errors, server-sent events, idempotency."""
