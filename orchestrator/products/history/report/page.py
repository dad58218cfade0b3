"""The page of a report: a summary without script, the packed run, and the viewer.

The page fetches no resource, and no text of the run can become code: the content security policy
allows only our script and style, by their hashes, and the run is base64.
"""

from contextlib import suppress
from typing import Final

import attrs
import msgspec

from orchestrator.agents.script import Script
from orchestrator.agents.turn_plan import SCRIPT
from orchestrator.delegation import one_line
from orchestrator.ports.journals import RunHistory
from orchestrator.products.history.coordination import Coordination
from orchestrator.products.history.report.packed_tree import columns_of, pack
from orchestrator.products.history.report.summary import summary_of
from orchestrator.products.history.report.transcripts import (
    NOT_SUCCEEDED,
    PackedTranscripts,
    Transcripts,
    pack_transcripts,
)
from orchestrator.products.viewer import built, html_page

BODY: Final = """\
<div id="viewer"></div>
<article id="summary" class="summary">
{summary}
<p class="small" id="data-line"><button type="button" class="chip" id="data">Save the data of\
 this run as JSON</button></p>
<noscript><p class="small">This browser runs no script, so there is only the summary.</p></noscript>
</article>
<script type="application/json" id="about">{about}</script>
<script type="text/plain" id="columns">{columns}</script>
{transcripts}"""


@attrs.frozen
class Report:
    """A report, and its transcripts."""

    html: str
    transcripts: PackedTranscripts


def build_report(
    history: RunHistory, *, version: str, transcripts: Transcripts, team: Coordination | None = None
) -> Report:
    """Build the report of a run, with its coordination metrics if they are given."""
    if transcripts is Transcripts.NONE:
        history = attrs.evolve(history, answer="")
    packed = pack_transcripts(history, transcripts)
    title = _title(history)
    body = BODY.format(
        summary=summary_of(history, title, version=version, transcripts=packed.sentence, team=team),
        about=_json(_about(history, title, packed)),
        columns=pack(columns_of(history, sources=transcripts is not Transcripts.NONE)),
        transcripts="\n".join(
            f'<script type="text/plain" id="transcripts-{number}">{packet}</script>'
            for number, packet in enumerate(packed.packets)
        ),
    )
    html = html_page(
        f"{title} · run {history.run}", body, style=built("report.css"), script=built("report.js")
    )
    return Report(html, packed)


def _title(history: RunHistory) -> str:
    node = history.tree[history.tree.root]
    goal = node.goal
    if node.agent == SCRIPT:
        # A script that runs by itself has its purpose and its source as its goal.
        with suppress(msgspec.DecodeError):
            goal = msgspec.json.decode(goal, type=Script).goal
    return f"{node.agent}: {one_line(goal)}" if goal else node.agent


def _about(history: RunHistory, title: str, transcripts: PackedTranscripts) -> dict[str, object]:
    numbers = {task: number for number, task in enumerate(history.tree)}
    return {
        "title": title,
        "run": history.run,
        # The root is left out: it is always on the critical path.
        "critical": [
            numbers[task] for task in history.critical_path.tasks if task != history.tree.root
        ],
        "transcripts": {
            "kind": transcripts.kind,
            "statuses": sorted(NOT_SUCCEEDED),
            "index": transcripts.index,
        },
    }


def _json(value: object) -> str:
    """Return JSON that cannot end its script element."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")
