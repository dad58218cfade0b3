"""A worker process: it runs the calls and turns that writers lend it."""
