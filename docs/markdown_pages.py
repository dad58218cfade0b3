"""The site for models: each page also as Markdown, and `llms.txt`, which lists all pages."""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, relpath
from typing import Any, Final

from docutils.io import StringOutput
from sphinx.application import Sphinx
from sphinx.builders.text import TextBuilder
from sphinx.writers.text import TextWriter

TOCTREE: Final = re.compile(r"^```\{toctree\}\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
CODE: Final = re.compile(r"^```.*?^```\n", re.DOTALL | re.MULTILINE)
CAPTION: Final = re.compile(r"^:caption: (.*)$", re.MULTILINE)
PICTURE: Final = re.compile(r"(!\[[^\]]*\]\()(?:\.\./)*pictures/")
SUMMARY: Final = "Run agents that delegate to agents as one tree, in Python."


def page_text(app: Sphinx, page: str, writer: TextWriter) -> str:
    """Return a page as Markdown; the reference, which docstrings make, is plain text below it."""
    source = app.env.doc2path(page)
    text = TOCTREE.sub("", Path(source).read_text("utf-8"))
    up = relpath(".", dirname(page) or ".")
    text = PICTURE.sub(rf"\g<1>{'' if up == '.' else up + '/'}_images/", text)
    if "```{eval-rst}" not in text:
        return text
    writer.write(app.env.get_doctree(page), StringOutput(encoding="unicode"))
    assert isinstance(writer.output, str)
    title = text.partition("\n")[0]
    # The writer repeats the title, underlined.
    return f"{title}\n\n{writer.output.partition('*' * 3)[2].lstrip('*').strip()}\n"


def title_and_summary(text: str) -> tuple[str, str]:
    """Return the title of a page, and the first sentence below it."""
    title, _, rest = text.partition("\n")
    paragraphs = [" ".join(it.split()) for it in CODE.sub("", rest).split("\n\n")]
    prose = (it for it in paragraphs if it and it[0] not in "#!|:<-*")
    sentence = re.split(r"(?<=\.) ", next(prose, ""))[0]
    return title.removeprefix("# "), sentence.rstrip(":")


def sections(app: Sphinx) -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of pages, in the order of the site."""
    for block in TOCTREE.findall(Path(app.env.doc2path("index")).read_text("utf-8")):
        caption = CAPTION.search(block)
        assert caption is not None, "each group of pages has a caption"
        yield caption[1], [it for it in block.split("\n") if it and not it.startswith(":")]
    for page, below in app.env.toctree_includes.items():
        if page != "index":
            yield page.partition("/")[0].capitalize(), below


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Write the pages beside their HTML when the site is built."""
    if error is not None or app.builder.name != "html":
        return
    builder = TextBuilder(app, app.env)
    builder.init()
    writer = TextWriter(builder)
    folder = Path(app.outdir)
    shown: dict[str, tuple[str, str]] = {}
    for page in sorted(app.env.found_docs):
        text = page_text(app, page, writer)
        shown[page] = title_and_summary(text)
        target = folder / f"{page}.md"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    lines = [f"# {app.config.project}", "", f"> {SUMMARY}", ""]
    for caption, pages in [("Start", ["index"]), *sections(app)]:
        lines += [f"## {caption}", ""]
        for page in pages:
            title, summary = shown[page]
            lines.append(f"- [{title}]({page}.md)" + (f": {summary}" if summary else ""))
        lines.append("")
    (folder / "llms.txt").write_text("\n".join(lines), "utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the pages after the site."""
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
