"""What the providers share: the HTTP client, server-sent events, errors, and the transcript as their protocols want it."""
