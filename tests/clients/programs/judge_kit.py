"""Named checks of a fake, run one after the other: a line of JSON for each."""

import json
import traceback
from collections.abc import Awaitable, Callable


async def run_checks(*checks: Callable[[], Awaitable[object]]) -> None:
    """Run checks; the name of each function says what it checks."""
    for check in checks:
        error = ""
        try:
            await check()
        except Exception:
            error = traceback.format_exc(limit=-3)
        _say(check, error)


def run_check(check: Callable[..., object], *given: object) -> None:
    """Run a check of a library that does not wait."""
    error = ""
    try:
        check(*given)
    except Exception:
        error = traceback.format_exc(limit=-3)
    _say(check, error)


def _say(check: Callable[..., object], error: str) -> None:
    name = check.__name__.replace("_", " ")
    print(json.dumps({"check": name, "works": not error, "error": error}), flush=True)
