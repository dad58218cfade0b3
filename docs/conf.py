"""How `make docs` builds the site: pages of Markdown, and the API from docstrings, by Sphinx."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

project = "delegation-orchestrator"
author = "the delegation-orchestrator authors"
release = version = version_of("delegation-orchestrator")

sys.path.append(str(Path(__file__).parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "markdown_pages"]
default_role = "code"  # docstrings have code in single backticks

# Pages are Markdown as GitHub shows it, so that both read them.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]
suppress_warnings = [
    # A console session with `...` is no code of its language.
    "misc.highlighting_failure"
]

napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "show-inheritance": True,
    "exclude-members": "__init__, __new__",
}
python_maximum_signature_line_length = 80

# Everything is in the site itself: no font, script or style comes from elsewhere.
html_theme = "furo"
html_title = "delegation-orchestrator"
html_static_path: Final[list[str]] = []
html_theme_options = {"source_repository": "", "navigation_with_keys": True}
html_copy_source = False
html_show_sphinx = False


# Napoleon takes what stands before a colon for the type of an attribute, so it sees none.
COLON: Final = "\ue000"
ATTRIBUTES: Final = ("attribute", "data", "property")


def hide_colons(  # noqa: PLR0917 (Sphinx calls it so)
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Hide the colons of an attribute's docstring from napoleon."""
    if what in ATTRIBUTES:
        lines[:] = [line.replace(":", COLON) for line in lines]


def show_colons(  # noqa: PLR0917 (Sphinx calls it so)
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Show them again, after napoleon."""
    lines[:] = [line.replace(COLON, ":") for line in lines]


def setup(app: Any) -> None:
    """Connect what changes docstrings before and after napoleon, whose priority is 500."""
    app.connect("autodoc-process-docstring", hide_colons, priority=400)
    app.connect("autodoc-process-docstring", show_colons, priority=600)
