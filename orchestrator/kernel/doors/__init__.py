"""Doors: how the outside talks to a session. Each declares what it can deliver later."""
