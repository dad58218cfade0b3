"""Several servers in one process, with a virtual clock and simulated faults: a seed is one history.

The servers are real: routers, holders, shard keepers, journals, leases and orchestrators. Simulated
are the clock (trio's `MockClock`), threads (`threads.py`), Postgres behind `psycopg.connect`
(`database.py`), and the network between servers and clients (`network.py`). `rounds.py` plays a
seed, and `oracle.py` judges it with the laws of the chaos tests.
"""
