"""The names of agent files that other products may import. Each is imported on first use."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.products.agent_files.job_entry import JobEntry
else:
    from orchestrator.late_call import late_names

    __getattr__ = late_names(__name__, {"orchestrator.products.agent_files.job_entry": "JobEntry"})
