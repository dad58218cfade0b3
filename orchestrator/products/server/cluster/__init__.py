"""Several servers with the same journals: who holds which, and how a request reaches its writer."""
