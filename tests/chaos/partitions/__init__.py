"""Three real servers, each in a network namespace of its own, with cuts between them and Postgres.

It needs root on Linux, and `ip`. `network.py` makes the namespaces, `rounds.py` plays a fault with
the clients and the oracle of the simulation.
"""
