"""Finds routes that let somebody in by themselves, in the source of their modules.

A request is given what it can be told later in one place, `orchestrator/doors/http.py`. A route
asks that door, and does nothing of what the door does: this looks for just that, in the module of
each handler and in all of the server that it imports.
"""

import ast
import importlib
import inspect
from collections.abc import Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, Final, get_args

from delegation.events import Event
from orchestrator.server.operation import Operation

SERVER: Final = "orchestrator.server"
ROOMS: Final = frozenset(
    {
        "orchestrator.execution.local",
        "orchestrator.engine.delegator",
        "orchestrator.doors.one_shot",
        "orchestrator.doors.session",
        "orchestrator.services",
        "orchestrator.engine.turns",
    }
)
"""Where turns are begun: nothing of these is a route's."""
NAMES: Final = frozenset(
    {
        "HttpDoor",
        "Origin",
        "begin_only_turn",
        "bind_session",
        "clear_session_vars",
        "open_orchestrator",
        "open_session",
        "reset_session_vars",
        "run_once",
        "set_current_session_id",
        "set_session_vars",
        "take_only_turn",
    }
)
"""What nobody but a door calls."""
VERBS: Final = {
    "inbound": {"open_inbound_session", "post_message"},
    "book": {"admit", "post", "record"},
    "delegator": {"delegate", "run_child", "run_joined"},
    "ledger": {"fold"},
    "orchestrator": {"fork", "open_session", "run"},
    "registry": {"register_child", "register_session", "unregister_session"},
    "turns": {"attach", "begin", "deliver", "detach", "take", "take_and_reply"},
}
"""What nobody but a door does with the parts of the house."""
CAPABILITY: Final = "DeliveryCapability"
ASKED: Final = "orchestrator.doors.inbound"
EVENTS: Final = "delegation.events"
FACTS: Final = frozenset(kind.__name__ for kind in get_args(Event))


def breaches_of(operations: Iterable[Operation]) -> list[str]:
    """Return what routes do that only the door may do: where, and what."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    for operation in operations:
        for module in _with_imports(_module_of(operation.handle), seen):
            for breach in breaches_in(inspect.getsource(module)):
                found[f"{module.__name__}:{breach}"] = None
    return list(found)


def breaches_in(source: str) -> list[str]:
    """Return what a module does that only the door may do, by line."""
    tree = ast.parse(source)
    facts = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == EVENTS
        for name in node.names
        if name.name in FACTS
    }
    compared = {
        id(below)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for below in ast.walk(node)
    }
    return [
        f"{getattr(node, 'lineno', 0)}: {what}"
        for node in ast.walk(tree)
        for what in _breaches(node, facts, is_compared=id(node) in compared)
    ]


def _breaches(node: ast.AST, facts: set[str], *, is_compared: bool) -> Iterator[str]:
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from _forbidden_imports(node)
        case ast.Call(func=ast.Name(id=name)) if name in facts:
            yield f"makes the fact {name}"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if (
            name in NAMES
        ):
            yield f"calls {name}"
        case ast.Call(func=ast.Attribute(value=receiver, attr=verb)) if (
            verb in VERBS.get(_last_name(receiver), ())
        ):
            yield f"calls {_last_name(receiver)}.{verb}"
        case ast.Name(id=name) | ast.Attribute(attr=name) if (
            # Whoever only compares gives nothing.
            name == CAPABILITY and not is_compared
        ):
            yield f"uses {CAPABILITY}"
        case _:
            pass


def _forbidden_imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = {name.name for name in node.names}
    module = node.module if isinstance(node, ast.ImportFrom) else None
    for room in ROOMS & {*names, module}:
        yield f"imports {room}"
    if module == ASKED:
        for name in names & VERBS["asked"]:
            yield f"imports {name}"


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lstrip("_")
        case _:
            return ""


def _module_of(handle: Any) -> ModuleType:
    while isinstance(handle, partial):
        handle = handle.func
    module = inspect.getmodule(inspect.unwrap(handle))
    assert module is not None, f"{handle} comes from nowhere"
    return module


def _with_imports(module: ModuleType, seen: set[str]) -> Iterator[ModuleType]:
    """Yield a module and all of the server that it imports, each once."""
    if module.__name__ in seen:
        return
    seen.add(module.__name__)
    yield module
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        for name in _imported(node):
            # Its front door shows others what routes do not use.
            if name.startswith(f"{SERVER}."):
                yield from _with_imports(importlib.import_module(name), seen)


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module=str(module), names=names):
            yield module
            if module == SERVER:
                yield from (f"{SERVER}.{name.name}" for name in names)
        case ast.Import(names=names):
            yield from (name.name for name in names)
        case _:
            pass
