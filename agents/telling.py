"""What stands under a telling name, `password` or `api_key`, and whether it is a secret.

In a file of settings it is; in source code and prose a name mostly stands for what is elsewhere.
"""

import re
from typing import Final, cast

import attrs

TAKEN_OUT: Final = "***"
SHORTEST: Final = 8
"""A value that is shorter would be found in any text."""

# Case does not matter in names, but only ASCII has the letters we look for.
ANY_CASE: Final = re.IGNORECASE | re.ASCII

NAMES: Final = (
    *("password", "passwd", "passphrase", "pwd", "secret", "credential"),
    *("authorization", "key", "token"),
)
"""In small letters: where none of them is, nothing has a telling name."""
NAME: Final = (
    r"(?P<name>pass(?:word|wd|phrase)|(?<![a-z])pwd(?==)|secret|credentials?|authorization|token"
    r"|(?:api|secret|private|access|account|auth|encryption|signing|master|service)[_-]?key)"
)
_OPERATOR: Final = r"(?:=>|:=|[:=](?![:=]))"
_TYPE: Final = r":[ \t]*[A-Za-z_][\w.\[\]|, \t]{0,60}?=[ \t]*(?=[bru]{0,2}[\"'])"
_SCHEME: Final = r"(?:(?:basic|bearer|digest|token|apikey|key)[ \t]+)"
# What is cut off has no quote at its end, and is as secret as the whole. A quote in JSON in JSON
# is closed by as many backslashes as it was opened with; a value may end with some of its own.
_QUOTED: Final = (
    r"\"(?:\\.|[^\"\\\n])*+(?:\"|\\?$)|'(?:\\.|[^'\\\n])*+(?:'|\\?$)"
    r"|(?P<deep>\\{1,15})(?P<mark>[\"']).*?"
    r"(?:(?<!\\)(?:(?P=deep)\\(?P=deep)\\)*(?P=deep)(?P=mark)|$)"
)
_NAMED: Final = re.compile(
    rf"{NAME}(?:(?P<close>\\{{0,15}}[\"'])?[ \t]*(?:{_TYPE}|(?P<is>{_OPERATOR})[ \t]*)"
    rf"|(?P<flag>[ \t]+))"
    rf"(?P<value>(?:[bruf]{{1,2}}(?=[\"']))?(?:{_QUOTED})"
    rf"|{_SCHEME}?[^\s\"'\\&;]{{1,80}})",
    ANY_CASE | re.MULTILINE,
)
_REST: Final = re.compile(
    r"[^\s\"'\\&;]*+(?:[&;](?![\w.-]*+=)[^\s\"'\\&;]++)*+", re.ASCII
)
_BEFORE: Final = re.compile(r"[\w.-]*\Z", re.ASCII)
_QUOTES: Final = re.compile(r"[bruf]{0,2}(?P<open>\\*[\"'])", ANY_CASE)
_LABEL: Final = re.compile(r"[A-Za-z ,.:'-]{1,120}", re.ASCII)
_SPOKEN_OF: Final = re.compile(rf"\b(?:api )?{NAME}\b|\bkey\b", ANY_CASE)
TELLING: Final = re.compile(rf"{NAME}\Z", ANY_CASE)
# What stands for a secret and is none: `$NAME`, `${{ it }}`, `<yours>`, `%s`, a path, an address.
_STAND_IN: Final = re.compile(
    r"[\W_]*|[xX]{3,}|\$[A-Z_][A-Z0-9_]*|\$\{\w+\}?|\$?\{\{.*|\$\(.*|\{[^{}]*\}|<[^<>]*>"
    r"|%\w+%|%\(?\w*\)?[sdr]|[A-Za-z]+://.*|\d{1,3}(?:[.,-]\d{1,3})?%?"
    r"|(?!.{40}\Z)(?:(?:~|\.{1,2})?/|[A-Za-z]:[\\/])[\w.@ \\/-]*",
    re.DOTALL,
)
WORDS: Final = frozenset(
    "none null nil true false yes no on off undefined str string bytes bytearray text int"
    " integer number bool boolean any object optional required final self".split()
)
# A bracket, a call or a look at something, and a union of types.
_CODE: Final = re.compile(
    r"[(\[{<|].*|[$@&*!:]?[A-Za-z_][\w$]*(?:(?:\??\.|->|::)[A-Za-z_][\w$]*)*[(\[<{].*"
    r"|[$@&*!:]?[A-Za-z_]+\d{0,2}(?:(?:\??\.|->|::)[A-Za-z_]+\d{0,2})+"
    r"|[A-Za-z_]+(?:\|[A-Za-z_]+)+",
    re.DOTALL | re.ASCII,
)
_WORD: Final = re.compile(r"[$@&*!:]?[A-Za-z_]+", re.ASCII)
_OWN_TOKEN: Final = re.compile(
    r"(?:access|auth|refresh|bearer|session|secret|private|api|bot|csrf|vault|deploy|jwt"
    r"|(?<![a-z])id)[_-]?\Z",
    ANY_CASE,
)
_OTHER_TOKEN: Final = re.compile(
    r"(?:page|next|continuation|cursor|sync|[bu]os|eos|pad|unk|cls|sep|mask)[_-]?\Z",
    ANY_CASE,
)
_LOGIN: Final = re.compile(r"\blogin[ \t]+\S{1,80}[ \t]+\Z", ANY_CASE)
_SCHEME_FIRST: Final = re.compile(_SCHEME, ANY_CASE)


@attrs.frozen
class Said:
    """Under which name a value stands, and how."""

    before: str
    """What the name begins with: `client_` in `client_secret`."""
    name: str
    quoted: bool = False
    by_itself: bool = False
    """As in a file of settings, where no value is a piece of code."""

    def is_secret(self, value: str) -> bool:
        if _STAND_IN.fullmatch(value) or value.lower() in WORDS:
            return False
        if self.name.lower() == "token" and not _OWN_TOKEN.search(self.before):
            if _OTHER_TOKEN.search(self.before):
                return False
            if not self.by_itself:
                return _is_opaque(value)
        if self.quoted:
            return not (_LABEL.fullmatch(value) and _SPOKEN_OF.search(value))
        if (
            _CODE.fullmatch(value)
            or value.lower() in f"{self.before}{self.name}".lower()
        ):
            return False
        if self.by_itself:
            return True
        # `token1`, but not `hunter2`.
        is_name = value.isidentifier() and _SPOKEN_OF.search(value.replace("_", " "))
        return not (is_name or _WORD.fullmatch(value))


def _is_opaque(value: str) -> bool:
    """Tell a token from a word, a number or a sign that somebody parses."""
    if len(value) < SHORTEST or re.search(r"\s", value) or _CODE.fullmatch(value):
        return False
    is_word = re.fullmatch(r"[A-Za-z_.:/-]+\d{0,2}", value) is not None
    return (has_digit(value) and not is_word and not value.isdecimal()) or bool(
        len(value) >= 20
        and re.fullmatch(r"(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=]+", value)
    )


def without_named(text: str) -> str:
    """Take out what stands under a telling name."""
    kept: list[str] = []
    done = at = 0
    while found := _NAMED.search(text, at):
        start, end = found.span("value")
        taken = _taken(found)
        if taken is None:
            # Inside what stays, something else may have a name.
            at = start
            continue
        shown, end = taken
        kept += text[done:start], shown
        done = at = end
    return "".join([*kept, text[done:]])


def _taken(found: re.Match[str]) -> tuple[str, int] | None:
    """Return what is shown instead of a value, and where that ends; nothing if it may stay."""
    text, name, value = found.string, found["name"], found["value"]
    start, end = found.span("value")
    first = found.start()
    before = cast("re.Match[str]", _BEFORE.search(text, max(0, first - 40), first))[0]
    if found["flag"] is not None and not (
        before.startswith("--") or _LOGIN.search(text, max(0, first - 100), first)
    ):
        return None
    scheme = ""
    if quotes := _QUOTES.match(value):
        around = quotes["open"]
        inner = value[quotes.end() :].removesuffix(around)
        if name.lower() == "authorization" and (said := _SCHEME_FIRST.match(inner)):
            scheme = said[0]
        if not Said(before, name, quoted=True).is_secret(inner[len(scheme) :]):
            return None
        return f"{value[: quotes.end()]}{scheme}{TAKEN_OUT}{around}", end
    if said := _SCHEME_FIRST.match(value):
        if name.lower() == "authorization":
            scheme = said[0]
        else:
            value = value.split(maxsplit=1)[0]
    value = value[len(scheme) :]
    if found["close"]:
        value = re.split(r"[,}\])]", value, maxsplit=1)[0]
    value = value.rstrip(",)]}>.:`")
    around = found["close"] or ""
    by_itself = _is_by_itself(found, before, value)
    is_secret = Said(before, name, by_itself=by_itself or bool(scheme)).is_secret
    if not is_secret(value.lstrip("`")):
        return None
    end = start + len(scheme) + len(value)
    if not found["close"]:
        rest = cast("re.Match[str]", _REST.match(text, end))[0]
        end += len(rest.rstrip(",)]}>.:`"))
    return f"{around}{scheme}{TAKEN_OUT}{around}", end


def _is_by_itself(found: re.Match[str], before: str, value: str) -> bool:
    """Tell whether it stands in an address, among settings, or alone in its line."""
    text, start = found.string, found.start() - len(before)
    said = text[found.end("name") : found.start("value")]
    ahead = text[max(0, start - 2) : start]
    is_first = not ahead or ahead[-1] in "\n?&" or ahead in {"\\n", "\\r"}
    is_loud = f"{before}{found['name']}".isupper()
    if said == "=":
        return is_first or is_loud
    end = found.start("value") + len(value)
    if not said.startswith(":") or text[end : end + 1] not in {"", "\n", "\r", "\\"}:
        return False
    is_header = is_first and found["name"].lower() == "authorization"
    return is_header or (is_loud and value.islower())


def is_no_stand_in(text: str) -> bool:
    return _STAND_IN.fullmatch(text) is None


def has_digit(text: str) -> bool:
    return any(map(str.isdecimal, text))
