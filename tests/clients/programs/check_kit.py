"""Named checks of one client, run one after the other: a line of JSON for each.

A program decorates its checks and ends with `main(...)`. It needs nothing but the client that it
tries, so it runs in an environment that has just that client.
"""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any, Self
from urllib.request import Request, urlopen

URL = sys.argv[1]
KEY = os.environ["ORCHESTRATOR_API_KEY"]
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""The smallest picture, in base64."""

_checks: list[tuple[str, str, Callable[[], Any], str]] = []


def check(feature: str, *, fails: str = "") -> Callable[[Callable[[], Any]], Any]:
    """Add a check to the program; the name of the function says what it checks.

    Args:
        feature: the row of the matrix that it belongs to.
        fails: why the client itself cannot do it. Then the check has to fail.
    """

    def add(function: Callable[[], Any]) -> Callable[[], Any]:
        name = function.__name__.strip("_").replace("_", " ")
        _checks.append((feature, name, function, fails))
        return function

    return add


def main(*packages: str) -> None:
    """Run all checks, or those of the features that the command line names.

    Args:
        packages: the distributions whose versions are reported.
    """
    print(json.dumps({"versions": {name: version(name) for name in packages}}))
    wanted = sys.argv[2:]
    for feature, name, function, fails in _checks:
        if wanted and feature not in wanted:
            continue
        error = ""
        began = perf_counter()
        try:
            done = function()
            if inspect.iscoroutine(done):
                asyncio.run(done)
        except Exception as exc:
            error = f"{type(exc).__name__}: {exc}".partition("\n")[0][:400]
            if not fails:
                traceback.print_exc()
        seconds = round(perf_counter() - began, 2)
        row = {"feature": feature, "check": name, "error": error, "fails": fails}
        row["seconds"] = seconds
        print(json.dumps(row), flush=True)


def get(path: str) -> Any:
    """Return what the server says of itself, past the client."""
    request = Request(f"{URL}{path}", headers={"authorization": f"Bearer {KEY}"})
    with urlopen(request, timeout=20) as answer:
        text = answer.read().decode()
        is_json = answer.headers["content-type"].startswith("application/json")
    return json.loads(text) if is_json else text


def newest_run() -> str:
    return str(get("/v1/runs?limit=1")["data"][0]["id"])


def ending_of(run: str) -> str:
    """Wait until a run is over, and return how it ended."""
    get(f"/v1/runs/{run}/events")
    return str(get(f"/v1/runs/{run}")["status"])


def equal(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r}, not {wanted!r}")


def contains(found: Any, wanted: object) -> None:
    if wanted not in found:
        raise AssertionError(f"{wanted!r} is not in {found!r}")


class Raises:
    """`with raises(SomeError) as error:`; the error is `error.value`."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds
        self.value: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if error is None:
            names = ", ".join(it.__name__ for it in self._kinds)
            raise AssertionError(f"there is no error; it should be {names}")
        self.value = error
        return isinstance(error, self._kinds)


raises = Raises
