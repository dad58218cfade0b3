"""The orchestrator for programs on asyncio: FastAPI, Django, notebooks.

    from orchestrator.asyncio import open_orchestrator, tool

Trio runs in its own thread; `docs/asyncio.md` has examples. Only this package imports asyncio.
"""

from orchestrator.products.asyncio.connection import ClientGoneError, while_connected
from orchestrator.products.asyncio.functions import FunctionModel, model, tool
from orchestrator.products.asyncio.owner_loop import run_in_asyncio
from orchestrator.products.asyncio.runtime import Orchestrator, open_orchestrator
from orchestrator.products.asyncio.session import Session
from orchestrator.products.asyncio.streamed_run import Events, StreamedRun

__all__ = [
    "ClientGoneError",
    "Events",
    "FunctionModel",
    "Orchestrator",
    "Session",
    "StreamedRun",
    "model",
    "open_orchestrator",
    "run_in_asyncio",
    "tool",
    "while_connected",
]
