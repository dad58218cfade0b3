"""Named checks of a fake, run one after the other: a line of JSON for each."""

import json
import traceback
from collections.abc import Awaitable, Callable


async def run_checks(*checks: Callable[[], Awaitable[object]]) -> None:
    """Run checks; the name of each function says what it checks."""
    for check in checks:
        name, error = check.__name__.replace("_", " "), ""
        try:
            await check()
        except Exception:
            error = traceback.format_exc(limit=-3)
        print(
            json.dumps({"check": name, "works": not error, "error": error}), flush=True
        )
