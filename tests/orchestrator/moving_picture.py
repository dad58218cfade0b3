"""Records `run` and `watch` in two real terminals, for the README: `make picture`.

The picture is an SVG that moves by itself, as a README shows it. A reader who wants no motion sees
the last frame.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias

import attrs
from pyte.screens import Char

from tests.orchestrator.terminals import Terminal, terminal

COLUMNS: Final = 92
ROWS: Final = (15, 13)
LETTER: Final = 7.83
LINE: Final = 17
BAR: Final = 26
"""The height of the title of a terminal, in pixels."""
PAUSE: Final = 0.15
"""Seconds between two looks at the terminals."""
HOLD: Final = 4.0
"""How long the last frame stays."""
COLOURS: Final = {
    "default": "#d5d9e0",
    "black": "#5c6370",
    "brightblack": "#7f8794",
    "red": "#f7768e",
    "green": "#7ec77b",
    "brown": "#e0af68",
    "yellow": "#e0af68",
    "blue": "#7aa2f7",
    "magenta": "#bb9af7",
    "cyan": "#6cc7d6",
    "white": "#d5d9e0",
}
TEAM: Final = '''
from orchestrator import Agent, ToolCall, Usage, confirm, tool
from orchestrator.testing import StreamingModel, hand_on


@tool
async def publish(title: str) -> str:
    """Publish the brief.

    Args:
        title: of the page.
    """
    return "published"


TOPICS = ("prices", "noise", "winter", "service life", "grants", "installers")
researcher = Agent(
    "researcher",
    model=StreamingModel.always(2.5, "Found it.", usage=Usage(1, 1800, 240, cost=6400)),
)
editor = Agent(
    "editor",
    model=StreamingModel(
        [
            [1.0, hand_on(*(f"Research {it}" for it in TOPICS))],
            [1.0, ToolCall("publish", {"title": "Heat pumps, in six answers"})],
            [1.0, "Published: Heat pumps, in six answers."],
        ],
        usage=Usage(1, 900, 150, cost=3100),
    ),
    delegates=[researcher],
    tools=[publish],
    approve=[confirm("publish")],
)
'''

Line: TypeAlias = tuple[tuple[str, str, bool, bool], ...]
"""The texts of a line, each with its colour, and whether it is bold and reversed."""
Screen: TypeAlias = tuple[Line, ...]


@attrs.frozen
class Frame:
    """The screens of both terminals, from a moment on."""

    at: float
    screens: tuple[Screen, ...]


def screen_of(it: Terminal) -> Screen:
    return tuple(_line(it.cells(row)) for row in range(it.rows))


def _line(cells: Sequence[Char]) -> Line:
    styled = groupby(cells, key=lambda it: (it.fg, it.bold, it.reverse))
    runs = [("".join(it.data for it in same), *style) for style, same in styled]
    while runs and not runs[-1][0].strip() and not runs[-1][3]:
        runs.pop()
    return tuple((text, COLOURS.get(fg, f"#{fg}"), bold, rev) for text, fg, bold, rev in runs)


class Recorder:
    """Looks at terminals, and keeps each change."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._began = time.monotonic()

    def look(self, *terminals: Terminal | None) -> None:
        screens = []
        for it in terminals:
            if it is not None:
                it.drain()
            screens.append(() if it is None else screen_of(it))
        frame = Frame(time.monotonic() - self._began, tuple(screens))
        if not self.frames or self.frames[-1].screens != frame.screens:
            self.frames.append(frame)

    def look_for(self, seconds: float, *terminals: Terminal | None) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look(*terminals)
            time.sleep(PAUSE)  # noqa: TID251 (a camera waits for the next frame)


def record(home: Path) -> list[Frame]:
    """Let an editor publish a brief, and approve it from a second terminal."""
    (home / "team.py").write_text(TEAM)
    recorder = Recorder()
    command = ("run", "team.py:editor", "Write a brief on heat pumps.")
    with terminal(home, *command, columns=COLUMNS, rows=ROWS[0], drawn=True) as run:
        run.wait_for("researcher[6]")
        recorder.look_for(0.5, run, None)
        with terminal(home, "watch", columns=COLUMNS, rows=ROWS[1], drawn=True) as watch:
            recorder.look_for(3.5, run, watch)
            watch.wait_for("waiting")
            recorder.look_for(1.5, run, watch)
            watch.type("a")
            watch.wait_for("y once")
            recorder.look_for(1.2, run, watch)
            watch.type("y")
            recorder.look_for(1.0, run, watch)
            watch.wait_for("ended")
            run.wait_for("in six answers.")
            recorder.look_for(0.5, run, watch)
    return recorder.frames


def svg_of(frames: Sequence[Frame], titles: Sequence[str]) -> str:
    """Return frames as one picture that moves."""
    width = round(COLUMNS * LETTER + 28)
    heights = [rows * LINE + BAR + 14 for rows in ROWS]
    height = sum(heights) + 10
    seconds = frames[-1].at + HOLD
    steps = "".join(
        f"{100 * frame.at / seconds:.3f}%{{transform:translateY({-number * height}px)}}"
        for number, frame in enumerate(frames)
    )
    last = f"translateY({-(len(frames) - 1) * height}px)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="An editor delegates to six researchers and'
        ' asks before it publishes; a second terminal watches, and approves.">',
        "<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',"
        "monospace;white-space:pre}.t{fill:#9aa2b1;font-size:12px}"
        f"@keyframes film{{{steps}100%{{transform:{last}}}}}"
        f".film{{animation:film {seconds:.1f}s steps(1,end) infinite}}"
        f"@media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:{last}}}}}"
        "</style>",
    ]
    top = 0
    for title, high in zip(titles, heights, strict=True):
        lines.append(
            f'<rect y="{top}" width="{width}" height="{high}" rx="8" fill="#16181d"/>'
            f'<text class="t" x="14" y="{top + 17}">{escape(title)}</text>'
        )
        top += high + 10
    lines.append('<g class="film">')
    for number, frame in enumerate(frames):
        top = number * height
        for screen, high in zip(frame.screens, heights, strict=True):
            lines.extend(_texts(screen, top + BAR + 10))
            top += high + 10
    lines.append("</g></svg>")
    return "\n".join(lines)


def _texts(screen: Screen, top: float) -> Iterator[str]:
    for row, line in enumerate(screen):
        y = top + row * LINE + 4
        column = 0
        spans: list[str] = []
        for text, colour, bold, is_reversed in line:
            x = 14 + column * LETTER
            column += len(text)
            if is_reversed:
                wide = len(text) * LETTER
                yield (
                    f'<rect x="{x:.1f}" y="{y - 13:.0f}" width="{wide:.1f}" height="{LINE}"'
                    f' fill="#3b4252"/>'
                )
            if text.strip():
                weight = ' font-weight="700"' if bold else ""
                spans.append(f'<tspan x="{x:.1f}" fill="{colour}"{weight}>{escape(text)}</tspan>')
        if spans:
            yield f'<text y="{y:.0f}">{"".join(spans)}</text>'


def main(file: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        frames = record(Path(home))
    titles = (
        '$ orchestrator run team.py:editor "Write a brief on heat pumps."',
        "$ orchestrator watch",
    )
    file.write_text(svg_of(frames, titles))
    print(f"{file}: {len(frames)} frames, {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
