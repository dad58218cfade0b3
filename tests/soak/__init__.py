"""A soak: a server and a library that live long, and the slopes of what they use."""
