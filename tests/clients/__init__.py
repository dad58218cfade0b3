"""Clients that others wrote, run against a real server, and the matrix of what works."""
