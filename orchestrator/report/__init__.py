"""One run as one file that anybody can open: no server, no network, nothing to install.

`orchestrator report` writes it. The sources of what runs in it are in `viewer/`, and what
`make viewer` makes of them is in `built/`.
"""

from orchestrator.report.page import Report, build_report
from orchestrator.report.run_history import RunHistory, read_history
from orchestrator.report.transcripts import Transcripts

__all__ = ["Report", "RunHistory", "Transcripts", "build_report", "read_history"]
