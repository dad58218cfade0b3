"""Gives schemathesis the ids that exist. It finds this file by SCHEMATHESIS_HOOKS.

It would make up the ids of things that do not exist, and never get beyond a 404. So some of what it
sends is about something that exists, unless it wants to send nonsense.
"""

import itertools
import json
import os
import re
import zlib
from typing import Any

import schemathesis
from schemathesis.core.parameters import ParameterLocation

POOL: dict[str, list[str]] = json.loads(os.environ.get("SERVED", "{}"))
LONGEST_KEY = 255
LONGEST_WAIT = 60
REAL = re.compile(r"[a-z]+_[0-9a-f]{16}")
numbers = itertools.count()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    del kwargs

    def is_wrong(place: ParameterLocation) -> bool:
        return bool(case.meta is not None and case.meta.is_negative_at(place))

    if case.path_parameters and not is_wrong(ParameterLocation.PATH):
        for name, made_up in case.path_parameters.items():
            case.path_parameters[name] = existing(context, name, str(made_up))
    if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
        case.body["model"] = "worker"
        if not is_wrong(ParameterLocation.BODY):
            # Its model says the same to all, and a schema of any kind would not fit that.
            case.body.pop("response_format", None)
            case.body.pop("text", None)
            case.body.pop("output_config", None)
            if context.operation.path == "/v1/simulations":
                # One says as much as fifty.
                case.body["seeds"] = 1
    make_whole(case.body)
    if case.headers and "Idempotency-Key" in case.headers:
        key = case.headers["Idempotency-Key"]
        if isinstance(key, str) and not is_wrong(ParameterLocation.HEADER):
            # The same with another body would be refused, and rightly so.
            case.headers["Idempotency-Key"] = f"{next(numbers)}{key}"[:LONGEST_KEY]
    if case.query and is_long_wait(case.query.get("wait")):
        case.query["wait"] = 0.01


def make_whole(body: Any) -> None:
    """Write a number like 2.0 as 2: a schema takes both for integers, the server only 2."""
    before = body.get("before") if isinstance(body, dict) else None
    if isinstance(before, float) and before.is_integer():
        body["before"] = int(before)


def is_long_wait(value: Any) -> bool:
    """Return whether the server would take this, and wait: also where all else is nonsense."""
    try:
        return 0 < float(value) <= LONGEST_WAIT
    except (TypeError, ValueError):
        return False


def existing(context: Any, name: str, made_up: str) -> str:
    """Return the id of something that exists, for most of those that were made up."""
    choice = zlib.crc32(made_up.encode(errors="replace"))
    if context.operation.path == "/v1/sessions/{session}/events":
        # The events of one that is open have no end. It has opened some by itself.
        closed = [*POOL["closed"], "r_nobody"]
        return closed[choice % len(closed)]
    if REAL.fullmatch(made_up):
        return made_up  # it goes on with what it has made itself
    pool = POOL.get(name, [])
    return pool[choice % len(pool)] if pool and choice % 5 else made_up
