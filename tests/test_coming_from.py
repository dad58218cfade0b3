"""`docs/coming-from.md` keeps its word: ours is no longer than theirs, and has a type everywhere.

That ours runs is a test of all documents, `test_docs`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
PAIRS = re.findall(r"^```py\n(.*?)^```$.*?^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


GUARD = 'if __name__ == "__main__":\n'


def lines(code: str) -> int:
    return sum(bool(line.strip()) for line in code.splitlines())


def test_there_is_a_pair_for_each_library() -> None:
    libraries = ("from agents import", "from pydantic_ai import", "create_supervisor")
    assert len(PAIRS) == len(libraries)
    for (theirs, ours), library in zip(PAIRS, libraries, strict=True):
        assert library in theirs
        assert "from orchestrator import" in ours


@pytest.mark.parametrize("pair", PAIRS, ids=["openai", "pydantic", "langgraph"])
def test_our_example_is_no_longer_than_theirs(pair: tuple[str, str]) -> None:
    theirs, ours = pair[0], pair[1].replace(GUARD, "")
    assert lines(ours) <= lines(theirs)
    assert len("".join(ours.split())) <= len("".join(theirs.split()))


def test_pyright_infers_every_type_in_ours(tmp_path: Path) -> None:
    outputs = {
        "run.output": "str",
        'run_sync(support, "", deps=bank).output': "Advice",
        "run.usage.usd": "float",
    }
    for number, ((_, ours), shown) in enumerate(zip(PAIRS, outputs, strict=True)):
        code = f"{ours}    reveal_type({shown})\n"  # inside of its guard
        (tmp_path / f"ours_{number}.py").write_text(code)
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
        "venvPath": str(ROOT),
        "venv": ".venv",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))

    done = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--outputjson"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {done.stdout}{done.stderr}")
    found = json.loads(done.stdout)["generalDiagnostics"]

    assert [it["message"] for it in found if it["severity"] != "information"] == []
    revealed = {Path(it["file"]).stem: it["message"] for it in found}
    for number, output in enumerate(outputs.values()):
        assert revealed[f"ours_{number}"].endswith(f'is "{output}"')
