"""How `make docs` builds the site: Sphinx, with the pages in Markdown and the API from docstrings."""

from importlib.metadata import version as version_of
from typing import Any, Final

project = "delegation-orchestrator"
author = "the delegation-orchestrator authors"
release = version = version_of("delegation-orchestrator")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["pictures/draw.py"]
default_role = "code"  # docstrings have code in single backticks

# Pages are Markdown as GitHub shows it, so that both read them.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline", "colon_fence"]
suppress_warnings = [
    # A console session with `...` is no code of its language.
    "misc.highlighting_failure",
]

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
html_theme_options = {
    "source_repository": "",
    "navigation_with_keys": True,
}
html_copy_source = False
html_show_sphinx = False


def keep_colons(  # noqa: PLR0917 (Sphinx calls it so)
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from reading what stands before a colon as the type of an attribute."""
    if what == "attribute":
        lines.insert(0, "")


def setup(app: Any) -> None:
    """Connect what changes docstrings, before napoleon reads them."""
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
