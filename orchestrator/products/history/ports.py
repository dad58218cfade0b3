"""The names of history that other products may import. Each is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.products.history.export_formats import (
        MEDIA_TYPES,
        Format,
        TreeFormat,
        draw_tree,
        export_tree,
        html_report,
    )
    from orchestrator.products.history.replay.fork import copy_run
    from orchestrator.products.history.replay.kept_facts import (
        KeptFacts,
        facts_before,
        facts_without,
    )
    from orchestrator.products.history.replay.record import DELEGATION_TOOLS, ReplayError
    from orchestrator.products.history.report.inline import inline_report
    from orchestrator.products.history.simulation import (
        Quantiles,
        SimulationReport,
        SimulationSettings,
    )
    from orchestrator.products.history.simulation.in_thread import simulate_in_thread

__all__ = [
    "DELEGATION_TOOLS",
    "MEDIA_TYPES",
    "Format",
    "KeptFacts",
    "Quantiles",
    "ReplayError",
    "SimulationReport",
    "SimulationSettings",
    "TreeFormat",
    "copy_run",
    "draw_tree",
    "export_tree",
    "facts_before",
    "facts_without",
    "html_report",
    "inline_report",
    "simulate_in_thread",
]

_MODULES = {
    "DELEGATION_TOOLS": "orchestrator.products.history.replay.record",
    "Format": "orchestrator.products.history.export_formats",
    "KeptFacts": "orchestrator.products.history.replay.kept_facts",
    "MEDIA_TYPES": "orchestrator.products.history.export_formats",
    "Quantiles": "orchestrator.products.history.simulation",
    "ReplayError": "orchestrator.products.history.replay.record",
    "SimulationReport": "orchestrator.products.history.simulation",
    "SimulationSettings": "orchestrator.products.history.simulation",
    "TreeFormat": "orchestrator.products.history.export_formats",
    "copy_run": "orchestrator.products.history.replay.fork",
    "draw_tree": "orchestrator.products.history.export_formats",
    "export_tree": "orchestrator.products.history.export_formats",
    "facts_before": "orchestrator.products.history.replay.kept_facts",
    "facts_without": "orchestrator.products.history.replay.kept_facts",
    "html_report": "orchestrator.products.history.export_formats",
    "inline_report": "orchestrator.products.history.report.inline",
    "simulate_in_thread": "orchestrator.products.history.simulation.in_thread",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
