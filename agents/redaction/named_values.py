"""Finds secrets by their names: values after `password`, `api_key` and the like.

In a file of settings such a value is a secret; in source code and prose the name mostly refers to a
value that is elsewhere.
"""

import re
import string
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, cast

import msgspec

from orchestrator.lazy_pattern import lazy_pattern

Replacement: TypeAlias = tuple[int, int, str]
"""The offsets of a secret, and the text in its place."""
Signs: TypeAlias = dict[re.Pattern[str], list[int]]
"""The ends of the signs of secrets that were found in a text, by the pattern of the sign."""
REDACTED: Final = "***"
MIN_SECRET_LENGTH: Final = 8
"""A shorter value would occur in any text."""
MAX_UNDECIDED: Final = 200
"""The number of characters of a value that decide whether it is secret.

A longer value after `Basic` or `Bearer` is always secret.
"""

# Names have any case, in ASCII letters only.
ANY_CASE: Final = re.IGNORECASE | re.ASCII

SECRET_NAME_WORDS: Final = (
    *("password", "passwd", "passphrase", "pwd", "secret", "credential"),
    *("authorization", "key", "token"),
)
"""In lower case. A text without any of them has no secret name."""
NAME_BEGINNINGS: Final = ("pass", "pwd=", "secret", "credential", "authorization", "key", "token")
_KINDS_OF_KEY: Final = (
    *("api", "secret", "private", "access", "account", "auth", "encryption"),
    *("signing", "master", "service"),
)
_BEFORE_KEY: Final = "|".join(
    f"(?<={kind}{between}key)" for kind in _KINDS_OF_KEY for between in ("", "[_-]")
)
# It begins with one of `SECRET_NAME_WORDS`, so it is tried only where one of them occurs.
SECRET_NAME: Final = (
    r"(?P<name>pass(?:word|wd|phrase)|pwd(?<![a-z]pwd)(?==)|secret|credentials?"
    rf"|authorization|token|key(?:{_BEFORE_KEY}))"
)
_OPERATOR: Final = r"(?:=>|:=|[:=](?![:=]))"
_TYPE: Final = r":[ \t]*[A-Za-z_][\w.\[\]|, \t]{0,60}?=[ \t]*(?=[bru]{0,2}[\"'])"
_SCHEME_NAME: Final = r"(?:basic|bearer|digest|token|apikey|key)"
_SCHEME: Final = rf"(?:{_SCHEME_NAME}[ \t]+)"
# A value that was cut off has no closing quote, and is as secret as the whole. A quote in nested
# JSON is closed with as many backslashes as it was opened; a value may end with some of its own.
_QUOTED: Final = (
    r"\"(?:\\.|[^\"\\\n])*+(?:\"|\\?$)|'(?:\\.|[^'\\\n])*+(?:'|\\?$)"
    r"|(?P<deep>\\{1,15})(?P<mark>[\"']).*?"
    r"(?:(?<!\\)(?:(?P=deep)\\(?P=deep)\\)*(?P=deep)(?P=mark)|$)"
)
# Each begins with a rare letter, which is found fast. With a group, the name begins this many
# characters before.
_AFTER_NAME: Final = r"(?=[\\\"' \t:=])"
_NAME_SIGNS: Final = (
    (lazy_pattern(rf"p(?:ass(?:w(?:or)?d|phrase){_AFTER_NAME}|wd=)"), 0),
    (lazy_pattern(rf"cr(?:edentials?|(et)(?<=secret)){_AFTER_NAME}"), 2),
    (lazy_pattern(rf"z(ation)(?<=authorization){_AFTER_NAME}"), 7),
    (lazy_pattern(rf"k(?:ey|(en)(?<=token)){_AFTER_NAME}"), 2),
)
NAMED: Final = lazy_pattern(
    rf"{SECRET_NAME}(?:(?P<close>\\{{0,15}}[\"'])?[ \t]*(?:{_TYPE}|(?P<is>{_OPERATOR})[ \t]*)"
    rf"|(?P<flag>[ \t]+))"
    rf"(?P<value>(?:[bruf]{{1,2}}(?=[\"']))?(?:{_QUOTED})"
    rf"|{_SCHEME}?[^\s\"'\\&;]{{1,80}})",
    ANY_CASE | re.MULTILINE,
)
# For a value that comes in pieces: a quoted one that is closed, and an unquoted one.
_CLOSED_VALUE: Final = lazy_pattern(
    r"[bruf]{0,2}(?:\"(?:\\.|[^\"\\\n])*+(?:\"|\\?\n)|'(?:\\.|[^'\\\n])*+(?:'|\\?\n)"
    r"|(?P<deep>\\{1,15})(?P<mark>[\"']).*?"
    r"(?:(?<!\\)(?:(?P=deep)\\(?P=deep)\\)*(?P=deep)(?P=mark)|\n))",
    ANY_CASE,
)
_OPEN_VALUE: Final = lazy_pattern(
    rf"(?:\\*+|{_SCHEME_NAME}[ \t]*+|{_SCHEME}?[^\s\"'\\&;]*+(?:[&;][^\s\"'\\&;]*+)*+)\Z", ANY_CASE
)
_UNQUOTED: Final = lazy_pattern(r"[^\s\"'\\&;]*+")
# The next line decides whether this one is of a file of settings: it may become such a line.
_OPEN_SETTING: Final = lazy_pattern(
    r"[ \t]*+(?:(?:\\+r)?\\*\Z|(?:\r\n?|\n|(?:\\+r)?\\+n)"
    r"(?:[ ]*[0-9]+(?:\t|\\+t?)?)?[ \t]*+"
    r"(?:(?:[#-]|[\w./-]++:)(?:[^\n\r\\]|\\(?![nr]))*+|[\w./-]*+)\Z)"
)
_REST: Final = lazy_pattern(r"[^\s\"'\\&;]*+(?:[&;](?![\w.-]*+=)[^\s\"'\\&;]++)*", re.ASCII)
_IN_NAMES: Final = f"{string.ascii_letters}{string.digits}_.-"
_QUOTES: Final = lazy_pattern(r"[bruf]{0,2}(?P<open>\\*[\"'])", ANY_CASE)
_LABEL: Final = lazy_pattern(r"[A-Za-z ,.:'-]{1,120}", re.ASCII)
_MENTION: Final = lazy_pattern(rf"\b(?:api )?{SECRET_NAME}\b|\bkey\b", ANY_CASE)
ENDS_IN_SECRET_NAME: Final = lazy_pattern(rf"{SECRET_NAME}\Z", ANY_CASE)
# Placeholders of secrets: `$NAME`, `${{ it }}`, `<yours>`, `%s`, a path, a URL.
_PLACEHOLDER: Final = lazy_pattern(
    r"[\W_]*|[xX]{3,}|\$[A-Z_][A-Z0-9_]*|\$\{\w+\}?|\$?\{\{.*|\$\(.*|\{[^{}]*\}|<[^<>]*>"
    r"|%\w+%|%\(?\w*\)?[sdr]|[A-Za-z]+://.*|\d{1,3}(?:[.,-]\d{1,3})?%?"
    r"|(?!.{40}\Z)(?:(?:~|\.{1,2})?/|[A-Za-z]:[\\/])[\w.@ \\/-]*",
    re.DOTALL,
)
_TYPES: Final = frozenset(
    [
        *("str", "string", "bytes", "bytearray", "text", "int", "integer"),
        *("number", "bool", "boolean", "any", "object", "float", "dict", "list"),
    ]
)
HARMLESS_WORDS: Final = _TYPES | frozenset(
    [
        *("none", "null", "nil", "true", "false", "yes", "no", "on", "off"),
        *("undefined", "optional", "required", "final", "self"),
    ]
)
# A bracket, a call, an attribute or an index, and a union of types.
_CODE: Final = lazy_pattern(
    r"[(\[{<|].*|[$@&*!:]?[A-Za-z_][\w$]*(?:(?:\??\.|->|::)[A-Za-z_][\w$]*)*[(\[<{].*"
    r"|[$@&*!:]?[A-Za-z_]+\d{0,2}(?:(?:\??\.|->|::)[A-Za-z_]+\d{0,2})+"
    r"|[A-Za-z_]+(?:\|[A-Za-z_]+)+",
    re.DOTALL | re.ASCII,
)
_WORD: Final = lazy_pattern(r"[$@&*!:]?[A-Za-z_]+", re.ASCII)
# Letters and digits are mixed, but not as in a numbered name; or it is long and of mixed case.
_OPAQUE: Final = lazy_pattern(
    r"(?=\S{8})(?=\S*[0-9])(?=\S*[A-Za-z])(?![A-Za-z_.:/-]+[0-9]{0,2}\Z)\S*"
    r"|(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=]{20,}"
)
_OWN_TOKEN: Final = lazy_pattern(
    r"(?:access|auth|refresh|bearer|session|secret|private|api|bot|csrf|vault|deploy|jwt"
    r"|(?<![a-z])id)[_-]?\Z",
    ANY_CASE,
)
_OTHER_TOKEN: Final = lazy_pattern(
    r"(?:page|next|continuation|cursor|sync|bos|eos|pad|unk|cls|sep|mask)[_-]?\Z", ANY_CASE
)
# Settings, as in YAML, are surrounded by lines of settings. The text may be JSON, or inside it:
# then its lines begin after a quote, and end with an escaped line end.
_NUMBER: Final = r"(?:[ ]*[0-9]+(?:\t|\\+t))?"
_BEGIN: Final = lazy_pattern(
    rf"(?P<after>\A|\n|\r|\\[nr]|[\[:,][ ]?\\*\"){_NUMBER}[ \t]*(?:-[ \t]+)?\Z"
)
_END: Final = lazy_pattern(r"[ \t]*(?:\Z|(?P<before>\r?\n|\r|(?:\\+r)?\\+n)|\\*\")")
_FOUND_IN_YAML: Final = lazy_pattern(r"\.ya?ml[:-](?:[0-9]+[:-])?[ \t]*(?:-[ \t]+)?\Z")
_OPENED: Final = lazy_pattern(r"[\[:,][ ]?\\*\"")
_CLOSED: Final = lazy_pattern(r"\\*\"\s*(?:[,}\]]|\Z)")
_SETTING: Final = lazy_pattern(
    rf"{_NUMBER}[ \t]*(?:---|#.*|-[ \t].*|(?:-[ \t]+)?[\w./-]+:(?:[ \t]+(?P<value>\S.*))?)?[ \t]*"
)
_LEAD: Final = 60
_LINE: Final = 300
"""How many characters are searched before a name, and of the lines around."""
# In source code, a type more often than a password.
_CAMELS: Final = lazy_pattern(r"(?:[A-Z][a-z]+)+")
# Remarks about a password.
_REMARKS: Final = frozenset(
    [
        *("missing", "invalid", "incorrect", "wrong", "expired", "empty", "unset"),
        *("set", "hidden", "changed", "unchanged", "unknown", "given", "ok"),
    ]
)
_LOGIN: Final = lazy_pattern(r"\blogin[ \t]+\S{1,80}[ \t]+\Z", ANY_CASE)
_SCHEME_FIRST: Final = lazy_pattern(_SCHEME, ANY_CASE)


class NamedValue(msgspec.Struct, frozen=True, gc=False):
    """The name of a value, and how the value is written."""

    name_prefix: str
    """The beginning of the name: `client_` in `client_secret`."""
    name: str
    quoted: bool = False
    standalone: bool = False
    """As in a file of settings, where no value is code."""

    def is_secret(self, value: str) -> bool:
        value = value[len(_scheme(self.name, value)) :]
        if _PLACEHOLDER.fullmatch(value) or value.lower() in HARMLESS_WORDS:
            return False
        if self.name.lower() == "token" and not _OWN_TOKEN.search(self.name_prefix):
            is_other = _OTHER_TOKEN.search(self.name_prefix) is not None
            if is_other or not self.standalone:
                return not is_other and _is_opaque(value)
        if self.quoted:
            return not _is_label(value)
        if _CODE.fullmatch(value) or value.lower() in self._names():
            return False
        return self.standalone or not _is_identifier(value)

    def _names(self) -> tuple[str, str]:
        return self.name.lower(), f"{self.name_prefix}{self.name}".lower()


def _scheme(name: str, value: str) -> str:
    """Return the scheme of an authorization header: `Bearer `."""
    found = _SCHEME_FIRST.match(value) if name.lower() == "authorization" else None
    return found[0] if found is not None else ""


def _is_label(value: str) -> bool:
    """Return whether this is a label or a message about a password."""
    is_prose = " " in value or value.isalpha()
    return bool(is_prose and _LABEL.fullmatch(value) and _MENTION.search(value))


def _is_identifier(value: str) -> bool:
    """Distinguish a word, or `token1`, from `hunter2`."""
    if _WORD.fullmatch(value):
        return True
    return value.isidentifier() and bool(_MENTION.search(value.replace("_", " ")))


def _is_opaque(value: str) -> bool:
    """Distinguish a token from a word, a number or a token of a parser."""
    return _OPAQUE.fullmatch(value) is not None and _CODE.fullmatch(value) is None


def lowered(text: str) -> str:
    """Return a text of the same length with its ASCII letters in lower case, and no others."""
    return text.encode("ascii", "replace").lower().decode("ascii")


def name_positions(low: str, first: int = 0) -> list[int]:
    """Return the offsets, from the first on, at which a name may begin in a lower case text."""
    found: list[int] = []
    for sign, before in _NAME_SIGNS:
        found += [it.start() - (before if it.lastindex else 0) for it in sign.finditer(low, first)]
    return sorted(position for position in found if position >= first)


def replaced(text: str, secrets: Iterable[Replacement]) -> str:
    """Return a text with the replacements of its secrets, which do not overlap."""
    parts: list[str] = []
    done = 0
    for start, end, shown in secrets:
        parts += text[done:start], shown
        done = end
    return "".join([*parts, text[done:]])


def named_secrets(
    text: str, low: str, _signs: Signs, begin: int = 0, first: int = 0
) -> Iterator[Replacement]:
    """Yield the secret values after names from `first` on that end after another offset."""
    done = 0
    for position in name_positions(low, first):
        # A value that stays may contain another name; a replaced one is skipped.
        found = NAMED.match(text, position) if position >= done else None
        # The value of a stream is whole when any of it is shown: it does not end there.
        if found is None or found.end() <= begin:
            continue
        if (secret := replacement(found)) is not None:
            shown, done = secret
            yield found.start("value"), done, shown


def replacement(found: re.Match[str]) -> tuple[str, int] | None:
    """Return the replacement of a value, and the end of the value; None if it may stay."""
    text, name, value = found.string, found["name"], found["value"]
    start, end = found.span("value")
    first = found.start()
    if found["flag"] is not None and not _is_flag(text, first):
        return None
    before = _name_prefix(text, first)
    if quotes := _QUOTES.match(value):
        around = quotes["open"]
        inner = value[quotes.end() :].removesuffix(around)
        if not NamedValue(before, name, quoted=True).is_secret(inner):
            return None
        scheme = _scheme(name, inner)
        return f"{value[: quotes.end()]}{scheme}{REDACTED}{around}", end
    scheme = _scheme(name, value)
    value = value[len(scheme) :].split(maxsplit=1)[0]
    if found["close"]:
        value = re.split(r"[,}\])]", value, maxsplit=1)[0]
    value = value.rstrip(",)]}>.:`")
    around = found["close"] or ""
    standalone = _is_standalone(found, before, value) or bool(scheme)
    named = NamedValue(before, name, standalone=standalone)
    if not named.is_secret(value.lstrip("`")):
        return None
    end = start + len(scheme) + len(value)
    if not found["close"]:
        rest = cast("re.Match[str]", _REST.match(text, end))[0]
        end += len(rest.rstrip(",)]}>.:`"))
    return f"{around}{scheme}{REDACTED}{around}", end


def _name_prefix(text: str, start: int) -> str:
    """Return the beginning of the name: `client_` in `client_secret`."""
    ahead = text[max(0, start - 40) : start]
    return ahead[len(ahead.rstrip(_IN_NAMES)) :]


def _is_flag(text: str, start: int) -> bool:
    """Return whether a value follows a name after a blank: `--password` or `login me token`."""
    is_option = _name_prefix(text, start).startswith("--")
    return is_option or _LOGIN.search(text, max(0, start - 100), start) is not None


def _is_standalone(found: re.Match[str], before: str, value: str) -> bool:
    """Return whether the value is in a URL, among settings, or alone in its line."""
    text, start = found.string, found.start() - len(before)
    operator = text[found.end("name") : found.start("value")]
    ahead = text[max(0, start - 2) : start]
    is_first = not ahead or ahead[-1] in "\n?&" or ahead in {"\\n", "\\r"}
    is_upper = f"{before}{found['name']}".isupper()
    end = found.start("value") + len(value)
    if operator == "=":
        # In a call the value is a variable; anywhere else it is a literal.
        is_in_call = ahead.rstrip()[-1:] in {"(", ","} or text[end : end + 1] in {")", ","}
        return is_first or is_upper or not is_in_call
    is_word = operator.startswith(": ") and found["name"].lower() != "token"
    if is_word and _could_be_word_of_settings(value) and _is_setting(text, start, end):
        return True
    if not operator.startswith(":") or text[end : end + 1] not in {"", "\n", "\r", "\\"}:
        return False
    is_header = is_first and found["name"].lower() == "authorization"
    return is_header or (is_upper and value.islower())


def _is_setting(text: str, start: int, end: int) -> bool:
    """Return whether this is a line of settings, and not of code or prose."""
    ends = _END.match(text, end)
    if ends is None:
        return False
    begins = _BEGIN.search(text, max(0, start - _LEAD), start)
    if begins is None:
        return _FOUND_IN_YAML.search(text, max(0, start - _LEAD), start) is not None
    before = _line_before(text, begins.start(), begins["after"])
    after = _line_after(text, ends.end()) if ends["before"] else ""
    return _could_be_setting(before) and _could_be_setting(after)


def _line_before(text: str, end: int, after: str) -> str:
    """Return the line before an offset, from a line end or a quote on."""
    if after not in {"\n", "\r", "\\n", "\\r"}:
        return ""
    line = text[max(0, end - _LINE) : end].rstrip("\r\\")
    line = line.removesuffix("\\r").rstrip("\\")
    broken = line.rfind(after)
    if broken >= 0:
        return line[broken + len(after) :]
    *_, opened = (0, *(found.end() for found in _OPENED.finditer(line)))
    return line[opened:]


def _line_after(text: str, begin: int) -> str:
    line = text[begin : begin + _LINE]
    for broken in ("\n", "\r", "\\n", "\\r"):
        line = line.partition(broken)[0]
    closed = _CLOSED.search(line)
    return (line if closed is None else line[: closed.start()]).rstrip("\\")


def _could_be_setting(line: str) -> bool:
    found = _SETTING.fullmatch(line)
    value = "" if found is None else (found["value"] or "").rstrip()
    is_code = value.lower() in _TYPES or value.endswith((",", ";", "{", "("))
    return found is not None and not is_code


def _could_be_word_of_settings(value: str) -> bool:
    is_remark = value.lower() in _REMARKS or _MENTION.search(value.replace("_", " "))
    return not is_remark and _CAMELS.fullmatch(value) is None


def unfinished_value(text: str, name: re.Match[str]) -> int | None:
    """Return for how many characters the value after a secret name is undecided, or None."""
    begin = name.end()
    if name["flag"] and not _is_flag(text, name.start()):
        return None
    if _QUOTES.match(text, begin):
        return None if _CLOSED_VALUE.match(text, begin) else MAX_UNDECIDED
    if _OPEN_VALUE.match(text, begin):
        return MAX_UNDECIDED
    is_word = text.startswith(":", name.end("name")) and name["name"].lower() != "token"
    value = cast("re.Match[str]", _UNQUOTED.match(text, begin))
    if is_word and _OPEN_SETTING.match(text, value.end()):
        return MAX_UNDECIDED + _LINE
    return None


def is_not_placeholder(text: str) -> bool:
    return _PLACEHOLDER.fullmatch(text) is None


def has_digit(text: str) -> bool:
    return any(map(str.isdecimal, text))
