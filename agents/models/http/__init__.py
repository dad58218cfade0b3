"""Parts that the HTTP providers share: client, streams, errors, and the transcript on the wire."""
