"""The imports of the README's first program: modules and attrs classes, in a fresh process."""

import json
import os
import re
import subprocess
import sys
from typing import Any, Final

from tests.performance.counting import ROOT

_FENCE: Final = re.compile(r"```python\n(.*?)```", re.DOTALL)
_PROBE: Final = """
import gc, json, sys
classes = [it for it in gc.get_objects() if isinstance(it, type) and "__attrs_attrs__" in vars(it)]
print(json.dumps({"modules": len(sys.modules), "attrs classes": len(classes)}))
"""


def first_program_imports() -> str:
    """Return the import statements of the first program in the README."""
    found = _FENCE.search(ROOT.joinpath("README.md").read_text())
    assert found is not None
    lines = found[1].splitlines()
    return "\n".join(it for it in lines if it.startswith(("import ", "from ")))


def count_imports() -> dict[str, int]:
    environ = {name: it for name, it in os.environ.items() if not name.startswith("COVERAGE")}
    done = subprocess.run(
        [sys.executable, "-c", first_program_imports() + _PROBE],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env={**environ, "PYTHONPATH": str(ROOT)},
    )
    counts: Any = json.loads(done.stdout)
    return {str(name): int(count) for name, count in counts.items()}
