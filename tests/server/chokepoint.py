"""Finds routes that open sessions without the door of requests, in the source of their modules.

One place decides what can be delivered after a request: `orchestrator/kernel/doors/`. A route calls
that door, and does nothing that the door does; it reads with `Orchestrator.read`. This looks for
other calls in the module of each handler, and in every module of the server that it imports.
"""

import ast
import importlib
import inspect
from collections.abc import Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, Final, get_args

from orchestrator.delegation.events import Event
from orchestrator.products.server.operation import Operation

SERVER: Final = "orchestrator.products.server"
OURS: Final = (f"{SERVER}.", "orchestrator.products.mcp.server.")
"""How the names of the modules begin that handle requests."""
FORBIDDEN_MODULES: Final = frozenset(
    {
        "orchestrator.kernel.doors.lifecycle",
        "orchestrator.kernel.doors.one_shot",
        "orchestrator.kernel.doors.session",
        "orchestrator.kernel.engine.delegator",
        "orchestrator.kernel.engine.deliveries",
        "orchestrator.kernel.engine.turns",
        "orchestrator.kernel.execution.local",
        "orchestrator.kernel.journal.bookkeeper",
        "orchestrator.kernel.sessions",
    }
)
"""The modules that open sessions, connect doors, begin turns and post facts."""
PORTS: Final = "orchestrator.ports."
FORBIDDEN_PORTS: Final = frozenset(
    {"Bookkeeper", "Deliveries", "open_engine", "open_session", "run_once"}
)
"""The names of the ports that do the same."""
NAMES: Final = frozenset(
    {
        "KeptDoor",
        "RequestDoor",
        "Origin",
        "bind_session",
        "clear_session_vars",
        "close_session",
        "connect_door",
        "disconnect_door",
        "open_new_session",
        "open_orchestrator",
        "open_services",
        "open_session",
        "reopen_session",
        "reset_session_vars",
        "run_once",
        "set_current_session_id",
        "set_session_vars",
        "take_only_turn",
    }
)
"""The functions and classes that only a door calls."""
VERBS: Final = {
    "inbound": {"open_inbound_session", "post_message"},
    "book": {"admit", "post", "record"},
    "facts": {"admit", "post", "record"},
    "delegator": {"delegate", "run_child", "run_joined"},
    "ledger": {"fold"},
    "orchestrator": {"fork", "open_session", "run"},
    "registry": {"register_child", "register_session", "unregister_session"},
    "deliveries": {"attach", "deliver", "detach"},
    "turns": {"begin", "take", "take_and_deliver"},
}
"""The methods of each service that only a door calls."""
CAPABILITY: Final = "DeliveryCapability"
INBOUND: Final = "orchestrator.kernel.doors.inbound"
EVENTS: Final = "orchestrator.delegation.events"
FACTS: Final = frozenset(kind.__name__ for kind in get_args(Event))


def breaches_of(operations: Iterable[Operation]) -> list[str]:
    """Return the calls in routes that only the door may make, each with its place."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    for operation in operations:
        for module in _with_imports(_module_of(operation.handle), seen):
            for breach in breaches_in(inspect.getsource(module)):
                found[f"{module.__name__}:{breach}"] = None
    return list(found)


def breaches_in(source: str) -> list[str]:
    """Return the calls in a module that only the door may make, each with its line."""
    tree = ast.parse(source)
    facts = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == EVENTS
        for name in node.names
        if name.name in FACTS
    }
    compared = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for child in ast.walk(node)
    }
    return [
        f"{getattr(node, 'lineno', 0)}: {breach}"
        for node in ast.walk(tree)
        for breach in _breaches(node, facts, is_compared=id(node) in compared)
    ]


def _breaches(node: ast.AST, facts: set[str], *, is_compared: bool) -> Iterator[str]:
    match node:
        case ast.Import() | ast.ImportFrom():
            yield from _forbidden_imports(node)
        case ast.Call(func=ast.Name(id=name)) if name in facts:
            yield f"makes the fact {name}"
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in NAMES:
            yield f"calls {name}"
        case ast.Call(func=ast.Attribute(value=receiver, attr=verb)) if verb in VERBS.get(
            _last_name(receiver), ()
        ):
            yield f"calls {_last_name(receiver)}.{verb}"
        case ast.Attribute(attr="_engine" as name):
            yield f"uses {name}"
        case ast.Name(id=name) | ast.Attribute(attr=name) if (
            # A comparison grants nothing.
            name == CAPABILITY and not is_compared
        ):
            yield f"uses {CAPABILITY}"
        case _:
            pass


def _forbidden_imports(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = {name.name for name in node.names}
    module = node.module if isinstance(node, ast.ImportFrom) else None
    for forbidden in FORBIDDEN_MODULES & {*names, module}:
        yield f"imports {forbidden}"
    is_port = (module or "").startswith(PORTS)
    for name in names & FORBIDDEN_PORTS if is_port else ():
        yield f"imports {name}"
    if module == INBOUND or is_port:
        for name in names & VERBS["inbound"]:
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
    assert module is not None, f"{handle} has no module"
    return module


def _with_imports(module: ModuleType, seen: set[str]) -> Iterator[ModuleType]:
    """Yield a module and every one that it imports and that handles requests, each once."""
    if module.__name__ in seen:
        return
    seen.add(module.__name__)
    yield module
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        for name in _imported(node):
            # The package itself re-exports names that routes do not use.
            if name.startswith(OURS):
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
