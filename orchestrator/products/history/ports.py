"""The names of history that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

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
    from orchestrator.products.history.simulation.load import (
        Load,
        RecordedCalls,
        most_calls_at_once,
        recorded_calls,
        simulate_load,
    )
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__,
        {
            "orchestrator.products.history.export_formats": (
                "Format MEDIA_TYPES TreeFormat draw_tree export_tree html_report"
            ),
            "orchestrator.products.history.replay.fork": "copy_run",
            "orchestrator.products.history.replay.kept_facts": (
                "KeptFacts facts_before facts_without"
            ),
            "orchestrator.products.history.replay.record": "DELEGATION_TOOLS ReplayError",
            "orchestrator.products.history.report.inline": "inline_report",
            "orchestrator.products.history.simulation": (
                "Quantiles SimulationReport SimulationSettings"
            ),
            "orchestrator.products.history.simulation.in_thread": "simulate_in_thread",
            "orchestrator.products.history.simulation.load": (
                "Load RecordedCalls most_calls_at_once recorded_calls simulate_load"
            ),
        },
    )
