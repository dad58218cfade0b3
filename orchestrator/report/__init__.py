"""One run as one file that anybody can open: no server, no network, nothing to install.

`orchestrator report` writes it. The sources of what runs in it are in `viewer/`, and what
`make viewer` makes of them is in `built/`.
"""

from orchestrator.report.page import Report, written
from orchestrator.report.run_history import Story, story_of
from orchestrator.report.transcripts import Transcripts

__all__ = ["Report", "Story", "Transcripts", "story_of", "written"]
