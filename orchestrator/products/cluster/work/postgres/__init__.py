"""Mailboxes and presence in Postgres: two connections a process, whatever it writes or runs."""
