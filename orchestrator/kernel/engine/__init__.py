"""The engine: takes turns, starts and settles tasks, delivers replies."""
