"""The pages of promises name tests that exist, and each promise has its parts."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "promises.md").read_text()
PROMISES = PAGE.split("\n### ")[1:]
SECURITY = (ROOT / "docs" / "security-promises.md").read_text()
ROWS = [line for line in SECURITY.splitlines() if re.match(r"\| (?!Promise \|)", line)]
CLUSTER = (ROOT / "docs" / "cluster.md").read_text()
FAULTS = [line for line in CLUSTER.splitlines() if re.search(r"\| `tests/", line)]
FINDINGS = [
    line
    for line in (ROOT / "docs" / "findings.md").read_text().splitlines()
    if re.match(r"\| (?!Finding \|)", line)
]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_each_promise_has_a_scope_a_proof_and_a_window() -> None:
    assert len(PROMISES) > 10
    for promise in PROMISES:
        for part in ("Scope", "Proof", "Window"):
            assert f"- **{part}:** " in promise, promise.partition("\n")[0]


def test_the_tests_that_prove_them_exist() -> None:
    assert len(FAULTS) > 10
    assert len(FINDINGS) > 50
    fixed = [it for it in FINDINGS if "| open: " not in it]
    for promise in [*PROMISES, *ROWS, *FAULTS, *fixed]:
        named = NAMED.findall(promise)
        assert named, promise.partition("\n")[0]
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_each_promise_of_security_is_called_a_wall_or_a_fence() -> None:
    assert len(ROWS) > 30
    for row in ROWS:
        _, kind, _, _ = row.strip("|").split("|")
        assert re.search(r"\b(wall|fence)\b", kind), row


def test_the_readme_links_to_the_promises() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "(docs/promises.md)" in readme
    assert "(SECURITY.md)" in readme
