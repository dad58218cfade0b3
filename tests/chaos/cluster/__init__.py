"""A writer, a standby and workers on a real Postgres, with faults in the midst of their work.

A round is a seed that chooses the faults (`rounds.py`), a team whose tool calls are lent
(`team.py`), its processes (`processes.py`), and witnesses outside of them: logs that are synced
(`home.py`), a table that triggers write (`changes.py`). `oracle.py` compares them with the journal.
"""
