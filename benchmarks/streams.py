"""When a reader sees text that is searched for secrets: `python -m benchmarks.streams`.

A model writes a hundred pieces a second. The times are those at which pieces are shown, with and
without the search: they are counted, not measured, so every run gives the same ones.
"""

import random
import time
from itertools import pairwise
from typing import Final

from benchmarks.measure import MICRO, Report
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.streamed_text import StreamRedactor

MILLISECONDS: Final = 10
"""Between two pieces of a model."""
PIECE: Final = 4
BASE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def texts() -> dict[str, str]:
    draw = random.Random(7)  # noqa: S311 (no secret)
    numbers = ",".join(str(draw.randrange(10**6)) for _ in range(1_000))
    points = "".join(f"L{draw.random() * 900:.1f},{draw.random() * 900:.1f}" for _ in range(500))
    letters = "".join(draw.choices(BASE64, k=6_000))
    lines = "\n".join(letters[at : at + 64] for at in range(0, len(letters), 64))
    return {
        "English": "The quick brown fox jumps over 12 lazy dogs, and then it sleeps. " * 60,
        "Chinese": "在2024年人工智能的发展速度超过了3倍很多公司开始使用GPT4等模型。" * 100,
        "Japanese": "2024年の東京では約1,400万人が暮らしAIのサービスが3倍に増えました。" * 100,
        "Thai": "ในปี2024ประเทศไทยมีประชากร70ล้านคนและเศรษฐกิจเติบโต3เปอร์เซ็นต์" * 60,
        "prose about tokens": "You need a token: the server has one, and a secret: keep it. " * 60,
        "code": 'def ask(token: str = "") -> str:\n    return post(api_key=token, password=None)\n'
        * 50,
        "an array of numbers": f"[{numbers}]",
        "an SVG path": f'<path d="M0,0{points}"/>',
        "base64 in one line": f"data:image/png;base64,{letters} ends here. ",
        "base64 in lines of 64": f"{lines}\nends here. ",
    }


def shown_at(text: str) -> tuple[list[int], float]:
    """Return when something of a text is shown, and the processor time of a piece."""
    stream = StreamRedactor(Redactor(["a-known-secret-value"]))
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    times: list[int] = []
    begun = time.process_time()
    for number, piece in enumerate(pieces, 1):
        if stream.add(piece):
            times.append(number * MILLISECONDS)
    cpu = (time.process_time() - begun) / len(pieces)
    # The end of the answer shows what is left.
    return [*times, len(pieces) * MILLISECONDS], cpu


def measure_streams(report: Report) -> None:
    for name, text in texts().items():
        times, cpu = shown_at(text)
        longest = max((after - before for before, after in pairwise(times)), default=0)
        first = f"a stream of {name}: its first character"
        report.add(first, MILLISECONDS, times[0], unit="ms")
        report.add("  its longest gap", MILLISECONDS, max(longest, times[0]), unit="ms")
        report.add("  processor time of a piece, against 100 us", 100, cpu * MICRO)


if __name__ == "__main__":
    measure_streams(Report())
