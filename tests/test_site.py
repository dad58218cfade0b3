"""The documentation as a site: it builds without a warning, and asks no other host for anything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import orchestrator

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"),
            *("-d", str(folder / "trees"), "-b", "html", str(DOCS), str(folder / "site")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    # A link to a page or a heading that is not there is a warning, too.
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "site"


def test_every_page_is_in_the_site_and_in_its_search(site: Path) -> None:
    pages = {str(it.relative_to(DOCS).with_suffix("")) for it in DOCS.rglob("*.md")}
    built = {str(it.relative_to(site).with_suffix("")) for it in site.rglob("*.html")}
    index = (site / "searchindex.js").read_text()

    assert pages - built == set()
    assert all(f'"{page}"' in index for page in pages)


def test_the_site_needs_no_network(site: Path) -> None:
    loaded = re.compile(
        r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["'](?:https?:)?//[^"']+"""
    )
    imported = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")

    for page in site.rglob("*.html"):
        assert loaded.findall(page.read_text()) == []
    for style in site.rglob("*.css"):
        assert imported.findall(style.read_text()) == []


def test_every_page_is_also_markdown_with_links_and_pictures_that_are_there(site: Path) -> None:
    link = re.compile(r"\]\((?!https?:|#)([^)#\s]+\.(?:md|png|svg))(?:#[^)]*)?\)")
    for page in DOCS.rglob("*.md"):
        twin = site / page.relative_to(DOCS)
        text = twin.read_text()
        assert text.startswith("# "), page
        assert "```{" not in text, page
        inside = [it for it in link.findall(text) if (page.parent / it).resolve().is_file()]
        inside = [it for it in inside if (page.parent / it).resolve().is_relative_to(DOCS)]
        assert [it for it in inside if not (twin.parent / it).is_file()] == [], page
        pictures = [it for it in link.findall(text) if "_images/" in it]
        assert [it for it in pictures if not (twin.parent / it).is_file()] == [], page


def test_the_reference_as_markdown_has_signatures_and_docstrings(site: Path) -> None:
    text = (site / "api" / "run.md").read_text()

    assert "orchestrator.open_orchestrator(" in text
    assert "autofunction" not in text


def test_the_list_for_models_has_every_page_once_with_a_sentence(site: Path) -> None:
    text = (site / "llms.txt").read_text()
    entries = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\)(: .+)?$", text, re.MULTILINE)
    pages = sorted(str(it.relative_to(DOCS)) for it in DOCS.rglob("*.md"))

    assert text.startswith("# delegation-orchestrator\n\n> ")
    assert sorted(path for _, path, _ in entries) == pages
    # The title of a decision is a sentence already.
    untold = [path for _, path, said in entries if not said]
    assert [path for path in untold if not path.startswith("decisions/0")] == []


def test_every_name_of_the_library_is_in_one_group_of_the_reference() -> None:
    groups = ("agents", "models", "pipelines", "run", "errors")
    text = "".join((DOCS / "api" / f"{it}.md").read_text() for it in groups)
    named = re.findall(r"^\.\. auto(?!module)\w+:: orchestrator\.(\w+)$", text, re.MULTILINE)

    assert sorted(named) == sorted(set(named))
    assert sorted(named) == sorted(orchestrator.__all__)
