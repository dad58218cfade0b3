"""The names of schedules that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.products.schedule import (
        CheckedTarget,
        Delivery,
        Job,
        JobEdit,
        Scheduler,
        Target,
    )
    from orchestrator.products.schedule.charges import UnpaidError
    from orchestrator.products.schedule.job import full_name, is_declared, session_of_name
    from orchestrator.products.schedule.targets import NO_TARGETS
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(
        __name__,
        {
            "orchestrator.products.schedule": "CheckedTarget Delivery Job JobEdit Scheduler Target",
            "orchestrator.products.schedule.charges": "UnpaidError",
            "orchestrator.products.schedule.job": "full_name is_declared session_of_name",
            "orchestrator.products.schedule.targets": "NO_TARGETS",
        },
    )
