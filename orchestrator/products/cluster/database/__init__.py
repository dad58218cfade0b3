"""Shared access to Postgres: connections, outages, wake-ups.

psycopg is an extra, imported when a database is first used. It is used synchronously, in threads:
its async face does not run under trio. The address of a database is a secret.
"""
