"""What stands under a telling name, `password` or `api_key`, and whether it is a secret.

In a file of settings it is; in source code and prose a name mostly stands for what is elsewhere.
"""

import re
import string
from typing import Final, cast

import attrs

REDACTED: Final = "***"
MIN_SECRET_LENGTH: Final = 8
"""A value that is shorter would be found in any text."""

# Case does not matter in names, but only ASCII has the letters we look for.
ANY_CASE: Final = re.IGNORECASE | re.ASCII

SECRET_NAME_WORDS: Final = (
    *("password", "passwd", "passphrase", "pwd", "secret", "credential"),
    *("authorization", "key", "token"),
)
"""In small letters: where none of them is, nothing has a telling name."""
_KINDS_OF_KEY: Final = (
    *("api", "secret", "private", "access", "account", "auth", "encryption"),
    *("signing", "master", "service"),
)
_BEFORE_KEY: Final = "|".join(
    f"(?<={kind}{between}key)" for kind in _KINDS_OF_KEY for between in ("", "[_-]")
)
# It begins with one of `NAMES`, so that it is tried only where one of them stands.
SECRET_NAME: Final = (
    r"(?P<name>pass(?:word|wd|phrase)|pwd(?<![a-z]pwd)(?==)|secret|credentials?"
    rf"|authorization|token|key(?:{_BEFORE_KEY}))"
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
    rf"{SECRET_NAME}(?:(?P<close>\\{{0,15}}[\"'])?[ \t]*(?:{_TYPE}|(?P<is>{_OPERATOR})[ \t]*)"
    rf"|(?P<flag>[ \t]+))"
    rf"(?P<value>(?:[bruf]{{1,2}}(?=[\"']))?(?:{_QUOTED})"
    rf"|{_SCHEME}?[^\s\"'\\&;]{{1,80}})",
    ANY_CASE | re.MULTILINE,
)
_REST: Final = re.compile(
    r"[^\s\"'\\&;]*+(?:[&;](?![\w.-]*+=)[^\s\"'\\&;]++)*+", re.ASCII
)
_IN_NAMES: Final = f"{string.ascii_letters}{string.digits}_.-"
_QUOTES: Final = re.compile(r"[bruf]{0,2}(?P<open>\\*[\"'])", ANY_CASE)
_LABEL: Final = re.compile(r"[A-Za-z ,.:'-]{1,120}", re.ASCII)
_MENTION: Final = re.compile(rf"\b(?:api )?{SECRET_NAME}\b|\bkey\b", ANY_CASE)
ENDS_IN_SECRET_NAME: Final = re.compile(rf"{SECRET_NAME}\Z", ANY_CASE)
# What stands for a secret and is none: `$NAME`, `${{ it }}`, `<yours>`, `%s`, a path, an address.
_PLACEHOLDER: Final = re.compile(
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
# A bracket, a call or a look at something, and a union of types.
_CODE: Final = re.compile(
    r"[(\[{<|].*|[$@&*!:]?[A-Za-z_][\w$]*(?:(?:\??\.|->|::)[A-Za-z_][\w$]*)*[(\[<{].*"
    r"|[$@&*!:]?[A-Za-z_]+\d{0,2}(?:(?:\??\.|->|::)[A-Za-z_]+\d{0,2})+"
    r"|[A-Za-z_]+(?:\|[A-Za-z_]+)+",
    re.DOTALL | re.ASCII,
)
_WORD: Final = re.compile(r"[$@&*!:]?[A-Za-z_]+", re.ASCII)
# Letters and digits are mixed, and not as in a numbered name; or it is long and of no one case.
_OPAQUE: Final = re.compile(
    r"(?=\S{8})(?=\S*[0-9])(?=\S*[A-Za-z])(?![A-Za-z_.:/-]+[0-9]{0,2}\Z)\S*"
    r"|(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/=]{20,}"
)
_OWN_TOKEN: Final = re.compile(
    r"(?:access|auth|refresh|bearer|session|secret|private|api|bot|csrf|vault|deploy|jwt"
    r"|(?<![a-z])id)[_-]?\Z",
    ANY_CASE,
)
_OTHER_TOKEN: Final = re.compile(
    r"(?:page|next|continuation|cursor|sync|bos|eos|pad|unk|cls|sep|mask)[_-]?\Z",
    ANY_CASE,
)
# Settings, as in YAML, have lines around them that are settings. The text may be JSON, or in it:
# then its lines begin behind a quote, and end with letters that stand for a line end.
_NUMBER: Final = r"(?:[ ]*[0-9]+(?:\t|\\+t))?"
_BEGIN: Final = re.compile(
    rf"(?P<after>\A|\n|\r|\\[nr]|[\[:,][ ]?\\*\"){_NUMBER}[ \t]*(?:-[ \t]+)?\Z"
)
_END: Final = re.compile(r"[ \t]*(?:\Z|(?P<before>\r?\n|\r|(?:\\+r)?\\+n)|\\*\")")
_FOUND_IN_YAML: Final = re.compile(r"\.ya?ml[:-](?:[0-9]+[:-])?[ \t]*(?:-[ \t]+)?\Z")
_OPENED: Final = re.compile(r"[\[:,][ ]?\\*\"")
_CLOSED: Final = re.compile(r"\\*\"\s*(?:[,}\]]|\Z)")
_SETTING: Final = re.compile(
    rf"{_NUMBER}[ \t]*(?:---|#.*|-[ \t].*|(?:-[ \t]+)?[\w./-]+:(?:[ \t]+(?P<value>\S.*))?)?[ \t]*"
)
_LEAD: Final = 60
_LINE: Final = 300
"""How many characters are looked at before a name, and of the lines around."""
# What is a type in source code, more often than a password.
_CAMELS: Final = re.compile(r"(?:[A-Z][a-z]+)+")
# What is said of a password, and is none.
_REMARKS: Final = frozenset(
    [
        *("missing", "invalid", "incorrect", "wrong", "expired", "empty", "unset"),
        *("set", "hidden", "changed", "unchanged", "unknown", "given", "ok"),
    ]
)
_LOGIN: Final = re.compile(r"\blogin[ \t]+\S{1,80}[ \t]+\Z", ANY_CASE)
_SCHEME_FIRST: Final = re.compile(_SCHEME, ANY_CASE)


@attrs.frozen
class NamedValue:
    """Under which name a value stands, and how."""

    name_prefix: str
    """What the name begins with: `client_` in `client_secret`."""
    name: str
    quoted: bool = False
    standalone: bool = False
    """As in a file of settings, where no value is a piece of code."""

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
    """Return what says of a header how to read it: `Bearer `."""
    found = _SCHEME_FIRST.match(value) if name.lower() == "authorization" else None
    return found[0] if found is not None else ""


def _is_label(value: str) -> bool:
    """Tell what is said to people about a password from one."""
    is_said = " " in value or value.isalpha()
    return bool(is_said and _LABEL.fullmatch(value) and _MENTION.search(value))


def _is_identifier(value: str) -> bool:
    """Tell a word, or `token1`, from `hunter2`."""
    if _WORD.fullmatch(value):
        return True
    return value.isidentifier() and bool(_MENTION.search(value.replace("_", " ")))


def _is_opaque(value: str) -> bool:
    """Tell a token from a word, a number or a sign that somebody parses."""
    return _OPAQUE.fullmatch(value) is not None and _CODE.fullmatch(value) is None


def redact_named_values(text: str) -> str:
    """Take out what stands under a telling name."""
    kept: list[str] = []
    done = 0
    for head in _name_positions(text):
        # Inside what stays, something else may have a name; inside what goes, nothing has.
        found = _NAMED.match(text, head) if head >= done else None
        if found is not None and (taken := _replacement(found)) is not None:
            shown, end = taken
            kept += text[done : found.start("value")], shown
            done = end
    return "".join([*kept, text[done:]])


def _name_positions(text: str) -> list[int]:
    """Return where a name could begin."""
    # The one letter that gets longer when it gets small would move all that follow.
    low = text.replace("\u0130", "i").lower()
    heads: list[int] = []
    for name in SECRET_NAME_WORDS:
        head = low.find(name)
        while head >= 0:
            heads.append(head)
            head = low.find(name, head + 1)
    return sorted(heads)


def _replacement(found: re.Match[str]) -> tuple[str, int] | None:
    """Return what is shown instead of a value, and where that ends; nothing if it may stay."""
    text, name, value = found.string, found["name"], found["value"]
    start, end = found.span("value")
    first = found.start()
    ahead = text[max(0, first - 40) : first]
    before = ahead[len(ahead.rstrip(_IN_NAMES)) :]
    if found["flag"] is not None and not (
        before.startswith("--") or _LOGIN.search(text, max(0, first - 100), first)
    ):
        return None
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
    by_itself = _is_standalone(found, before, value)
    is_secret = NamedValue(before, name, standalone=by_itself or bool(scheme)).is_secret
    if not is_secret(value.lstrip("`")):
        return None
    end = start + len(scheme) + len(value)
    if not found["close"]:
        rest = cast("re.Match[str]", _REST.match(text, end))[0]
        end += len(rest.rstrip(",)]}>.:`"))
    return f"{around}{scheme}{REDACTED}{around}", end


def _is_standalone(found: re.Match[str], before: str, value: str) -> bool:
    """Tell whether it stands in an address, among settings, or alone in its line."""
    text, start = found.string, found.start() - len(before)
    said = text[found.end("name") : found.start("value")]
    ahead = text[max(0, start - 2) : start]
    is_first = not ahead or ahead[-1] in "\n?&" or ahead in {"\\n", "\\r"}
    is_loud = f"{before}{found['name']}".isupper()
    end = found.start("value") + len(value)
    if said == "=":
        # In a call it is a name for what is elsewhere; anywhere else somebody has written it.
        is_in_call = ahead.rstrip()[-1:] in {"(", ","} or text[end : end + 1] in {
            ")",
            ",",
        }
        return is_first or is_loud or not is_in_call
    is_word = said.startswith(": ") and found["name"].lower() != "token"
    if is_word and _could_be_word_of_settings(value) and _is_setting(text, start, end):
        return True
    if not said.startswith(":") or text[end : end + 1] not in {"", "\n", "\r", "\\"}:
        return False
    is_header = is_first and found["name"].lower() == "authorization"
    return is_header or (is_loud and value.islower())


def _is_setting(text: str, start: int, end: int) -> bool:
    """Tell whether what stands there is a line of settings, and not of code or prose."""
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
    """Return the line that ends where another begins, behind a line end or a quote."""
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


def is_not_placeholder(text: str) -> bool:
    return _PLACEHOLDER.fullmatch(text) is None


def has_digit(text: str) -> bool:
    return any(map(str.isdecimal, text))
