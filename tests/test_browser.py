"""Pages that are opened in a browser, from a file and with the network off."""

import pytest
from browsing import Visit

FAULTS = {
    "a request": ("<img src='http://example.com/a.png'>", "request: http://example.com/a.png"),
    "an error": ("<script>missing()</script>", "error: missing is not defined"),
    "a message": ("<script>console.warn('slow')</script>", "warning: slow"),
    "a dialog": ("<script>alert('run')</script>", "dialog: run"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_page_that_misbehaves_is_caught(browser, tmp_path, fault):
    markup, complaint = FAULTS[fault]
    page = tmp_path / "page.html"
    page.write_text(f"<title>page</title>{markup}")

    with Visit(browser) as visit:
        title = visit.open(page).title()

    assert title == "page"
    assert complaint in visit.complaints


def test_a_quiet_page_has_no_complaint(visit, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<h1 id=here>quiet</h1>")

    assert visit.open(page, "here").inner_text("h1:target") == "quiet"
