"""The formats of API keys that are known by their beginning: the one table of them.

`redactor` builds its patterns and its cheap first look from it, `streamed_text` the beginnings
that it holds back. A new kind of key is a row here.
"""

from typing import Final

import msgspec


class KeyShape(msgspec.Struct, frozen=True, gc=False):
    """How the keys of one service look."""

    prefixes: tuple[str, ...]
    """How they begin, case included. All of one row have the same length."""
    rest: str
    """A regular expression of what follows."""
    is_like_words: bool = False
    """Words with hyphens look the same: only a long part and a digit make it a key."""
    rare_letter: str = ""
    """A letter of the prefixes that few facts contain: it is looked for first, since one letter
    is found many times as fast as a word. Not needed for prefixes that end in `_` or `-`."""


KEY_SHAPES: Final = (
    # Our own: see `orchestrator/products/server/keys/tokens.py`.
    KeyShape(("orc_",), "[0-9a-f]{16}_[0-9a-f]{16,}"),
    # OpenAI, Anthropic and others.
    KeyShape(("sk-",), "[A-Za-z0-9_-]{16,}", is_like_words=True),
    KeyShape(("ghp_", "gho_", "ghs_", "ghu_", "ghr_"), "[A-Za-z0-9]{20,}"),
    KeyShape(("github_pat_",), "[A-Za-z0-9_]{20,}"),
    KeyShape(("glpat-",), "[A-Za-z0-9_.-]{16,}"),
    # Slack
    KeyShape(("xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"), "[A-Za-z0-9-]{10,}"),
    KeyShape(("xapp-",), "[0-9]-[A-Za-z0-9-]{10,}"),
    # Stripe
    KeyShape(("sk_live_", "rk_live_"), "[A-Za-z0-9]{10,}"),
    # Hugging Face, Groq, npm, xAI, PyPI
    KeyShape(("hf_",), "[A-Za-z0-9]{20,}"),
    KeyShape(("gsk_",), "[A-Za-z0-9]{20,}"),
    KeyShape(("npm_",), "[A-Za-z0-9]{30,}"),
    KeyShape(("xai-",), "[A-Za-z0-9]{20,}"),
    KeyShape(("pypi-",), "Ag[A-Za-z0-9_-]{30,}"),
    # Amazon, Google, SendGrid
    KeyShape(("AKIA", "ASIA"), "[A-Z0-9]{16}(?![A-Za-z0-9])", rare_letter="I"),
    KeyShape(("AIza",), "[A-Za-z0-9_-]{30,}", rare_letter="I"),
    KeyShape(("SG.",), r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", rare_letter="G"),
    # A JWT, with or without its signature.
    KeyShape(
        ("eyJ",), r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*)?", rare_letter="J"
    ),
)

KEY_PREFIXES: Final = tuple(prefix for shape in KEY_SHAPES for prefix in shape.prefixes)
