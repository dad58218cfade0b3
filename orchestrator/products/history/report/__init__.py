"""The HTML report of a run: one file, without a server or a network.

`orchestrator report` writes it. `viewer/` has the sources of its script and style; `make viewer`
builds them into `built/`.
"""

from orchestrator.products.history.report.page import Report, build_report
from orchestrator.products.history.report.transcripts import Transcripts

__all__ = ["Report", "Transcripts", "build_report"]
