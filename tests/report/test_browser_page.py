"""The page of `--html`, in a browser: it opens from a file with the network off, and shows names as they are."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxsurgeon_lite as osl
from kit import FIXTURES
from kit.browsing import Visit

FAULTS = {
    "a request": ("<img src='http://example.com/a.png'>", "request: http://example.com/a.png"),
    "an error": ("<script>missing()</script>", "error: missing is not defined"),
    "a message": ("<script>console.warn('slow')</script>", "warning: slow"),
    "a dialog": ("<script>alert('run')</script>", "dialog: run"),
}
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)",
    "a\u2028b\u2029",
    "javascript:alert(1)",
)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """The page of a model whose node @4 is wrong."""
    page = tmp_path_factory.mktemp("page") / "report.html"
    osl.bisect(
        FIXTURES / "faulty_constant.onnx", FIXTURES / "references/whole_model.npz", html=page
    )
    return page


@pytest.fixture(scope="module")
def first_look(browser, faulty):
    """That page, and what is seen when it opens: the verdict, what is chosen, and whether the culprit is in view."""
    with Visit(browser) as visit:
        page = opened(visit, faulty)
        in_view = is_in_view(page, "#graphs .box.culprit")
        yield page, page.inner_text("#verdict"), chosen(page), in_view
    assert visit.complaints == []


@pytest.fixture(scope="module")
def report(first_look):
    """That page, opened once for what does not depend on what was chosen before."""
    return first_look[0]


@pytest.fixture(scope="module")
def linked(browser, faulty):
    """That page, opened by a link to a node."""
    with Visit(browser) as visit:
        yield opened(visit, faulty, "@7")
    assert visit.complaints == []


def opened(visit, page, fragment=""):
    """A page that is ready."""
    page = visit.open(page, fragment)
    page.wait_for_selector("body[data-ready]")
    return page


def chosen(page):
    """What the page says of the chosen node."""
    return page.inner_text("#details")


def is_in_view(page, selector):
    """Whether an element lies in what its scrolled frame shows, and on the screen once the graph is scrolled to."""
    page.locator("#graphs .area").scroll_into_view_if_needed()
    box, frame = (page.locator(each).first.bounding_box() for each in (selector, "#graphs .area"))
    inside = (
        box[at] >= frame[at] - 1 and box[at] + box[size] <= frame[at] + frame[size] + 1
        for at, size in (("x", "width"), ("y", "height"))
    )
    return all(inside) and page.locator(selector).first.is_visible()


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


def test_the_culprit_is_in_view_when_the_page_opens(first_look):
    _, verdict, chosen, in_view = first_look

    assert "Conv_4" in verdict
    assert "Conv 'Conv_4' (@4)" in chosen
    assert in_view


def test_what_is_marked_is_in_view_on_both_sides_of_a_wide_diff(visit, tmp_path):
    names = [f"b{n}" for n in range(40)]
    nodes = " ".join(f"{name} = Abs(x)" for name in names)
    text = f"{nodes} s = Sum({', '.join(names)}) y = Elu(s)"
    model = osl.build(f"wide (float[2] x) => (float[2] y) {{ {text} }}")
    osl.diff(model, osl.set_attr(model, "@41", {"alpha": 2.0}).model, html=tmp_path / "page.html")

    page = visit.open(tmp_path / "page.html")

    inside = """box => {
        const area = box.closest(".area").getBoundingClientRect(), own = box.getBoundingClientRect();
        return own.left >= area.left && own.right <= area.right;
    }"""
    marked = page.locator(".box.changed")
    assert [marked.nth(number).evaluate(inside) for number in range(2)] == [True, True]


def test_a_click_chooses_a_node_everywhere(report):
    report.evaluate("choose(0, 4)")
    report.locator("#graphs .box.node:not(.culprit)").first.click()

    number = report.evaluate("choice.node")
    assert number != 4
    assert f"(@{number})" in chosen(report)
    assert report.url.endswith(f"#@{number}")


def test_a_chart_says_where_it_draws_what_has_no_height(report):
    names = report.evaluate(
        """() => {
            const measure = structuredClone(page.measures[0]), chart = document.createElement("div");
            Object.assign(measure.numbers, [0, null, 0.5, null]);
            Object.assign(measure.bad, [false, false, true, true]);
            drawAlong(measure, chart);
            return chart.data.map(each => each.name);
        }"""
    )

    assert {"zero: at the bottom", "exact: at the bottom", "not finite: at the top"} <= {*names}


def test_search_goes_to_a_node_by_name_value_or_id(report):
    for typed, name in (("Conv_9", "Conv_9"), ("28", "Add_7"), ("@2", "Conv_2")):
        report.keyboard.press("/")
        report.keyboard.type(typed)
        report.keyboard.press("Enter")
        report.keyboard.press("Escape")
        assert name in chosen(report)
        report.locator("h1").click()

    report.fill("#query", "nowhere")
    assert "nothing is called so" in report.inner_text("#hits")


def test_a_link_leads_to_a_node(linked):
    assert "Add 'Add_7' (@7)" in chosen(linked)

    linked.evaluate("location.hash = '#@2'")
    linked.wait_for_function("choice.node === 2")
    linked.evaluate("location.hash = '#@99999'")
    linked.wait_for_function("choice.node === 4")
    linked.evaluate("location.hash = '#@2'")
    linked.wait_for_function("choice.node === 2")
    linked.evaluate("location.hash = '#@4'")  # a culprit: its neighborhood, values on the edges
    linked.wait_for_function("choice.node === 4")
    assert linked.locator(".chip[aria-pressed=true]").inner_text() == "around @4"
    assert "25" in linked.locator(".area text.edge").all_text_contents()


def test_nothing_on_the_page_offers_to_upload_a_chart(report):
    titles = report.locator(".modebar-btn").evaluate_all("all => all.map(e => e.dataset.title)")

    assert titles
    assert not [title for title in titles if "share" in title.lower() or "cloud" in title.lower()]


def test_a_keyboard_walks_the_graph_and_stays_in_it(report):
    report.evaluate("choose(0, 4)")
    focused = "document.activeElement.getAttribute('aria-label')"
    report.evaluate("document.querySelector('.box.node').focus()")
    first = report.evaluate(focused)
    report.keyboard.press("ArrowDown")
    assert report.evaluate(focused) != first

    report.keyboard.press("Enter")
    chosen = report.evaluate("choice.node")
    assert f"(@{chosen})" in report.evaluate(focused)
    for _ in range(2):
        report.keyboard.press("Backspace")
    assert report.evaluate("document.activeElement.closest('.area') !== null")
    report.keyboard.press("Escape")
    assert report.evaluate("choice.node") is None


def test_paper_is_light_and_shows_all_of_the_graph(linked):
    with linked.expect_navigation():  # the page is drawn anew in other colors
        linked.emulate_media(color_scheme="dark")
    linked.wait_for_selector("body[data-ready]")
    dark = linked.evaluate("getComputedStyle(document.body).backgroundColor")
    linked.emulate_media(media="print", color_scheme="dark")
    whole = "e => e.scrollHeight <= e.clientHeight + 1 && e.scrollWidth <= e.clientWidth + 1"

    light = linked.evaluate("getComputedStyle(document.body).backgroundColor")

    assert light == "rgb(246, 247, 249)" != dark
    assert linked.locator("#graphs .area").evaluate(whole)


def test_the_page_holds_the_result_for_machines(report):
    held = json.loads(report.locator("#data").text_content())

    assert held["result"]["culprits"][0]["id"] == "@4"


def test_hostile_names_are_shown_and_do_nothing(visit, tmp_path):
    names = ["x", *HOSTILE]
    nodes = [
        helper.make_node("Neg", [a], [b], name=b, doc_string=b)
        for a, b in zip(names, HOSTILE, strict=False)
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", HOSTILE[-1])]
    graph = helper.make_graph(nodes, HOSTILE[0], ends[:1], ends[1:])
    ones = np.ones(2, np.float32)
    references = {"x": ones} | {name: ones * (7 if name == HOSTILE[1] else -1) for name in HOSTILE}

    page = tmp_path / "report.html"
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    osl.bisect(model, references, html=page)

    shown = opened(visit, page)
    for number, name in enumerate(HOSTILE):
        shown.evaluate(f"choose(0, {number})")
        assert name.split("\u2028")[0] in chosen(shown)
    assert shown.locator("img, [onerror], [onmouseover], a[href^=javascript]").count() == 0


def test_the_tool_bar_of_a_chart_covers_no_legend_on_a_narrow_screen(browser, faulty):
    with Visit(browser) as visit:
        page = visit.open(faulty)
        page.set_viewport_size({"width": 500, "height": 900})
        page.reload()
        page.wait_for_selector("body[data-ready]")
        page.hover("#along .js-plotly-plot")
        overlaps = page.evaluate("""() => {
            const boxes = name => [...document.querySelectorAll(name)].map(e => e.getBoundingClientRect());
            const bars = boxes("#along .modebar-group"), texts = boxes("#along .legendtext");
            return [bars.length, texts.length, texts.filter(a => bars.some(
                b => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)).length];
        }""")
    bars, texts, covered = overlaps
    assert bars
    assert texts
    assert not covered
