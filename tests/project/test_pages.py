"""The README and docs/: examples give what they show, links lead somewhere."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kit.pages import BLOCK, PAGES, ROOT, run_page, same

WITH_EXAMPLES = [page for page in PAGES if BLOCK.search(page.read_text())]
README = ROOT / "README.md"


def named(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=named)
def test_the_examples_of_a_page_give_what_it_shows(page):
    """`scripts/update-examples` writes a page with the output that its examples have now."""
    # a path as long as the one that the page was written in: lines wrap the same
    with tempfile.TemporaryDirectory() as folder:
        assert run_page(page, Path(folder)) == page.read_text()


def test_only_what_rounding_moves_may_be_shown_otherwise():
    shown = "match 22 0 4.28e-05 0%\nMISMATCH 25 0.00919 0.000104\n"

    assert same(shown, "match 22 3.6e-07 0.000133 0%\nMISMATCH 25 0.00919 0.000104\n")
    assert not same(shown, "match 22 0 0.000133 0%\nMISMATCH 25 0.00919 0.000104\n")
    assert not same(shown, "match 22 3.6e-07 4.28e-05 0%\nMISMATCH 25 0.00919 0.000404\n")
    assert not same(shown, "match 22 3.6e-07 4.28e-05 0%\nMISMATCH 25 0.01919 0.000104\n")
    assert not same(shown, "match 22 1 4.28e-05 0%\nMISMATCH 25 0.00919 0.000104\n")
    assert not same("index 3: 0", "index 3: 1")


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files(page):
    """The site's own links are checked by its build, those that leave it here."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_a_page_that_is_not_built_says_where_to_read_what_the_build_adds():
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    added = [line for line in lines if line.endswith("-->")]

    assert added
    assert [line for line in added if "`" not in line and "](" not in line] == []
    assert [line for line in lines if line.startswith("{{")] == []


def test_the_package_alone_can_show_itself():
    done = subprocess.run(
        [sys.executable, "-m", "onnxsurgeon_lite", "demo"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "wrong node: Conv (@6) makes '27'" in done.stdout
