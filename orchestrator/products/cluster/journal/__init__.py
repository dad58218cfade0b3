"""Journals in a Postgres database."""
