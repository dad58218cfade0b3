"""The page of promises names tests that exist, and each promise has its parts."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
PROMISES = PAGE.split("\n### ")[1:]


def test_each_promise_says_its_scope_its_proof_and_its_window() -> None:
    assert len(PROMISES) > 10
    for promise in PROMISES:
        for part in ("Scope", "Proof", "Window"):
            assert f"- **{part}:** " in promise, promise.partition("\n")[0]


def test_the_tests_that_prove_them_exist() -> None:
    for promise in PROMISES:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise)
        assert named, promise.partition("\n")[0]
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_the_readme_leads_to_them() -> None:
    assert "(docs/promises.md)" in (ROOT / "README.md").read_text()
