"""The built scripts and styles of two web pages: the report and the console.

Both pages share `sources/run`, which shows a run. `make viewer` builds them.
"""

from functools import cache
from importlib.resources import files


@cache
def built(name: str) -> str:
    """Return a built script or style sheet, such as `report.js`."""
    return (files("orchestrator.products.viewer") / "built" / name).read_text(encoding="utf-8")
