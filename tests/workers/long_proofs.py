"""`python -m tests.workers.long_proofs`: the contract of work queues with 10,000 dispatches."""

import os
import sys

import pytest

if __name__ == "__main__":
    # Seeds and rounds, which other long proofs take, mean nothing here.
    os.environ["LONG_PROOFS"] = "1"
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/workers/contract"]))
