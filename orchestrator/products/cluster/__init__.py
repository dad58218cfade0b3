"""Many machines: journals in Postgres, and workers that run lent calls."""
