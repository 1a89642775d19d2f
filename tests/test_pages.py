"""The README and docs/: examples give what they show, every command has one, links lead somewhere."""

import re
import subprocess
import sys

import pytest
from pages import BLOCK, PAGES, ROOT, commands, run_page

WITH_EXAMPLES = [page for page in PAGES if BLOCK.search(page.read_text())]
README = ROOT / "README.md"


def named(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=named)
def test_the_examples_of_a_page_give_what_it_shows(page, tmp_path):
    """`scripts/update-examples` writes a page with the output that its examples have now."""
    assert run_page(page, tmp_path) == page.read_text()


def every_command():
    from onnxsurgeon_lite.cli.app import app

    groups = {"": app, **{g.name: g.typer_instance for g in app.registered_groups}}
    return {
        f"{name} {command.name or command.callback.__name__}".strip(): command
        for name, group in groups.items()
        for command in group.registered_commands
    }


def test_every_command_has_an_example():
    shown = {
        words for line in commands() for words in re.findall(r"onnxdbg ([\w-]+(?: [\w-]+)?)", line)
    }

    assert {
        name for name in every_command() if name not in shown | {s.split()[0] for s in shown}
    } == set()


def test_every_command_has_help():
    assert all(command.callback.__doc__ for command in every_command().values())


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files(page):
    """The site's own links are checked by its build, those that leave it here."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_package_alone_can_show_itself():
    done = subprocess.run(
        [sys.executable, "-m", "onnxsurgeon_lite", "demo"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "mismatch at value '27'" in done.stdout
    assert "produced by Conv (@6)" in done.stdout
