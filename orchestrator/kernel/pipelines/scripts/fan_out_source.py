"""The source of a script with each fan-out as one call: `gather(*[agent(...) for ...])`.

The interpreter stops at every call of a host function, and a stop takes a fifth of the time of a
child. So `gather` and `agent` of such a fan-out become names of the same length: one collects the
arguments, and the other is the only call. Lines and columns stay as they are.
"""

import tokenize
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from itertools import accumulate
from typing import Final

import msgspec

ARGUMENTS: Final = "args_"
FAN_OUTS: Final = {"gather": "agent_", "asyncio.gather": "asyncio_gather"}
DEFINITION: Final = f"def {ARGUMENTS}(*args, **keywords):\n    return (args, keywords)"
STUBS: Final = (
    f"from asyncio import gather as gather\n{' = '.join(FAN_OUTS.values())} = gather\n"
    f"{ARGUMENTS} = agent\n"
)
MOST_CHARACTERS: Final = 100_000

_NAMES: Final = {"agent": ARGUMENTS, **FAN_OUTS}
_WORDS: Final = frozenset({tokenize.NAME, tokenize.OP, tokenize.NEWLINE})
_SILENT: Final = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT})


class FanOutSource(msgspec.Struct, frozen=True):
    """The source that the interpreter runs."""

    code: str
    lines: Mapping[int, int]
    """The line of `agent`, by the offset in bytes of its fan-out."""

    def with_own_names(self, text: str) -> str:
        """Return a text of the interpreter with the names of the script."""
        if self.lines:
            for name, instead in _NAMES.items():
                text = text.replace(f"{instead}(", f"{name}(")
        return text


def with_fan_outs(code: str) -> FanOutSource:
    """Return a script with one call for each fan-out; unchanged if its names mean other things."""
    unchanged = FanOutSource(code, {})
    if "gather" not in code or len(code) > MOST_CHARACTERS:
        return unchanged
    try:
        tokens = [
            it
            for it in tokenize.generate_tokens(StringIO(code, newline="\n").readline)
            if it.type not in _SILENT
        ]
    except (tokenize.TokenError, SyntaxError):
        return unchanged  # the interpreter names the error
    words = [it.string if it.type in _WORDS else "" for it in tokens]
    if _has_other_meaning(words):
        return unchanged
    begins = list(accumulate((len(line) + 1 for line in code.split("\n")), initial=0))

    def offset(row: int, column: int) -> int:
        return begins[row - 1] + column

    lines: dict[int, int] = {}
    parts: list[str] = []
    done = 0
    for at in _fan_outs(words):
        first = at - 2 if words[at - 1] == "." else at
        start = offset(*tokens[first].start)
        lines[len(code[:start].encode("utf-8", "surrogatepass"))] = tokens[at + 4].start[0]
        for begin, last in ((first, at), (at + 4, at + 4)):
            start, stop = offset(*tokens[begin].start), offset(*tokens[last].end)
            if (instead := _NAMES.get(code[start:stop])) is None:
                return unchanged  # blanks around the dot
            parts += (code[done:start], instead)
            done = stop
    return FanOutSource("".join(parts) + code[done:], lines)


def _fan_outs(words: Sequence[str]) -> Iterator[int]:
    """Yield the place of each `gather` that begins a fan-out; `agent` is four words later."""
    for at, word in enumerate(words):
        if word != "gather" or words[at + 1 : at + 3] != ["(", "*"]:
            continue
        if words[at + 3] not in ("[", "(") or words[at + 4 : at + 6] != ["agent", "("]:
            continue
        end = _closing(words, at + 3)
        # A call inside would begin before the others, and a wait inside would hold them back.
        is_simple = {"await", "agent", "gather"}.isdisjoint(words[at + 5 : end])
        if not is_simple or words[_closing(words, at + 5) + 1] != "for":
            continue
        if words[end + 1 : end + 2] == [")"] or words[end + 1 : end + 3] == [",", ")"]:
            yield at


def _closing(words: Sequence[str], at: int) -> int:
    """Return the place of the bracket that closes another one; an early place if none does."""
    depth = 0
    for place in range(at, len(words)):
        depth += (words[place] in ("(", "[", "{")) - (words[place] in (")", "]", "}"))
        if depth == 0:
            return place
    return at


def _has_other_meaning(words: Sequence[str]) -> bool:
    """Return whether a script may define one of the names, or uses one as a value."""
    begin = 0
    for at, word in enumerate(words):
        before, after = words[at - 1], words[min(at + 1, len(words) - 1)]
        if before in ("\n", ";"):
            begin = at
        if word in _NAMES.values():
            return True
        if word == "asyncio" and before not in ("import", "from") and after != ".":
            return True
        if word not in ("agent", "gather"):
            continue
        if words[begin : begin + 3] == ["from", "asyncio", "import"]:
            is_defined = "as" in words[begin : at + 2]
        else:
            is_defined = before in ("def", "class") or after != "("
        if is_defined or (before == "." and words[at - 2] != "asyncio"):
            return True
    return False
