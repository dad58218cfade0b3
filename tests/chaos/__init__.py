"""Processes that are killed with SIGKILL again and again, and oracles outside of them.

A round is a plan (`plan.py`), a model provider over HTTP that counts (`provider.py`), and a process
that works on the plan (`worker.py`, `served.py`) and is killed and started again until it is done
(`rounds.py`). Then `oracle.py` compares what the outside has seen with what the journal says.
"""
