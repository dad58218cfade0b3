"""The pages that people see in a browser, built ahead: the report's, and the console's.

The sources are one: `sources/run` is what both pages show of a run. `make viewer` builds them.
"""

from functools import cache
from importlib.resources import files


@cache
def built(name: str) -> str:
    """Return a built script or style sheet, such as `report.js`."""
    return (files("orchestrator.products.viewer") / "built" / name).read_text(encoding="utf-8")
