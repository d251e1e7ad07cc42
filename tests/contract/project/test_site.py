"""The site that ``make docs`` builds: whole, strict, and without a request to anybody."""

import os
import re
import subprocess
import sys
from pathlib import Path

import markdown  # type: ignore[import-untyped] # it ships no types
import pytest

from support.shown import ROOT

LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")
CODE = re.compile(r"<(code|pre|script|style)\b.*?</\1>", re.DOTALL)
ROW, CELL = re.compile(r"<tr>(.*?)</tr>", re.DOTALL), re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)
BARS = re.compile(r"<(?:p|li)>[^<]* \|[^<]*|[^<\n]*-\|-[^<\n]*")
PLAIN = """
INHERIT: {config}
docs_dir: docs
plugins: []
nav: [index.md]
"""


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(folder)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # noqa: TID251 - a child needs a PATH
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_the_site_and_can_be_searched(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    index = (site / "search" / "search_index.json").read_text("utf-8")

    assert [page for page in pages if not (site / page).exists() or f'"{page}' not in index] == []


def broken(page: str) -> list[str]:
    """Return what a wrapped or unseparated row leaves in a page: text with bars, or a row with one cell alone."""
    without_code = CODE.sub("", page)
    rows = (CELL.findall(row) for row in ROW.findall(without_code))
    cut = [
        cells[0]
        for cells in rows
        if len(cells) > 1 and cells[0].strip() and not any(map(str.strip, cells[1:]))
    ]
    return [*BARS.findall(without_code), *cut]


def test_every_table_is_a_table(site: Path) -> None:
    pages = {path: path.read_text("utf-8") for path in site.rglob("*.html")}

    assert sum(page.count("<table>") for page in pages.values()) > 50
    found = {path.relative_to(site).as_posix(): broken(page) for path, page in pages.items()}
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    "text", ["a | b\n---|---\none | two\nthat goes on\n", "words\na | b\n---|---\none | two\n"]
)
def test_a_table_that_is_wrapped_or_not_set_apart_is_found(text: str) -> None:
    assert broken(markdown.markdown(text, extensions=["tables"])) != []
    assert broken(markdown.markdown("a | b\n---|---\none | two\n`x | y` | \n", extensions=["tables"])) == []


def test_the_api_is_told_from_the_docstrings(site: Path) -> None:
    api = (site / "reference" / "sdk.html").read_text("utf-8")
    assert "combee.sdk.Client.on_update" in api
    assert "Errors of the callback are logged." in api


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = {tag for page in site.rglob("*.html") for tag in LOADED.findall(page.read_text("utf-8"))}
    assert [tag for tag in loaded if 'rel="canonical"' not in tag] == []


@pytest.mark.parametrize("link", ["gone.md", "#gone", "index.md#gone", "../README.md", "gone.png"])
def test_a_dead_link_fails_the_build(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Here\n\n[there]({link})\n")
    (tmp_path / "mkdocs.yml").write_text(PLAIN.format(config=ROOT / "mkdocs.yml"))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert link.removeprefix("index.md") in done.stderr
