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


def test_every_name_of_the_library_is_in_one_group_of_the_reference() -> None:
    groups = ("agents", "models", "pipelines", "run", "errors")
    text = "".join((DOCS / "api" / f"{it}.md").read_text() for it in groups)
    named = re.findall(r"^\.\. auto(?!module)\w+:: orchestrator\.(\w+)$", text, re.MULTILINE)

    assert sorted(named) == sorted(set(named))
    assert sorted(named) == sorted(orchestrator.__all__)
