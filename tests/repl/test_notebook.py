"""The session of a notebook: the extension, the commands in cells, results as HTML with pictures."""

import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.graph.index import GraphIndex
from onnxsurgeon_lite.graph.selecting.browse import Graph
from onnxsurgeon_lite.report.page import notebook
from onnxsurgeon_lite.report.page.notebook import html_of
from onnxsurgeon_lite.report.page.picture import picture


@pytest.fixture
def shell(monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "onnxsurgeon_lite")
    references = FIXTURES / "references/whole_model.npz"
    shell.run_line_magic(
        "onnxdbg", f"{FIXTURES / 'faulty_attribute.onnx'} --reference {references}"
    )
    yield shell
    shell.user_ns["dbg"].runtime.__exit__()
    shell.history_manager.end_session()


def said(shell, cell: str, capsys) -> str:
    capsys.readouterr()
    shell.run_cell(cell)
    return "".join(capsys.readouterr())


def test_cells_are_the_commands_of_onnxdbg(shell, capsys, tmp_path):
    assert "wrong node" in said(shell, f"bisect -o {tmp_path}/culprit", capsys)
    assert "-> Sub" in said(shell, "edit set-op Add_7 Sub", capsys)
    assert "operator Add -> Sub" in said(shell, "diff", capsys)
    assert "B-> Conv" not in said(shell, "l", capsys)
    assert "No such option" in said(shell, "check --nope", capsys)


def test_cells_are_commands_and_python(shell, capsys):
    assert "breakpoint 1: '27'" in said(shell, "break 27", capsys)
    assert "MISMATCH" in said(shell, "run", capsys)
    assert "at the end" in said(shell, "x = 1\ndbg.heal('27')\ndbg.continue_()", capsys)
    assert "closest names: '27'" in said(shell, "dbg['277']", capsys)
    assert "closest names: '27'" in said(shell, "print 277", capsys)


def test_another_model_takes_the_place_of_the_first(shell, capsys):
    said(shell, f"%onnxdbg {FIXTURES / 'control_flow.onnx'} --seed 1", capsys)

    def offered(text: str) -> list[str]:
        with provisionalcompleter():
            return [each.text for each in shell.Completer.completions(text, len(text))]

    assert "state" in offered("print stat")
    assert not {"21", "22"} & {*offered("print 2")}
    assert len(shell.Completer.custom_matchers) == 1
    assert "x float [2, 3]" in said(shell, "print x", capsys)


def test_what_the_magic_does_not_know_is_said(shell, capsys):
    assert "cannot read 'nothing.onnx'" in said(shell, "%onnxdbg nothing.onnx", capsys)
    assert "usage: %onnxdbg" in said(shell, "%onnxdbg a.onnx --what", capsys)
    assert "usage: %onnxdbg" in said(shell, "%onnxdbg", capsys)


def test_results_are_html(shell):
    graph, dbg = shell.user_ns["graph"], shell.user_ns["dbg"]
    formats = shell.display_formatter.format

    assert "<td>24</td>" in formats(graph["@4"])[0]["text/html"]
    assert "dilations" not in formats(graph["25"])[0]["text/html"]
    assert "<pre>at Conv &#x27;Conv_0&#x27; (@0)" in formats(dbg.next())[0]["text/html"]
    assert 'src="data:image/png;base64,' in formats(dbg.read("25"))[0]["text/html"]
    assert formats(dbg.where())[0]["text/plain"].startswith("main graph: 1 of 11 nodes")
    assert html_of(dbg.read("convs1.0.bias")).count("<img") == 0


def pixels(png: bytes) -> np.ndarray:
    """The picture in a file that `picture` made."""
    width, height, _, color = struct.unpack(">IIBB", png[16:26])
    data = zlib.decompress(png[png.index(b"IDAT") + 4 : png.index(b"IEND") - 8])
    lines = np.frombuffer(data, np.uint8).reshape(height, -1)[:, 1:]
    return lines.reshape(height, width, 3) if color == 2 else lines


def test_an_image_is_shown_as_it_is_and_channels_side_by_side():
    image = np.zeros((1, 3, 6, 8), np.float32)
    image[0, 0, 0, 0] = 2

    assert pixels(picture(image))[0, 0].tolist() == [255, 0, 0]
    assert pixels(picture(image)).shape == (6, 8, 3)
    maps = np.stack([np.full((4, 4), i, np.float16) for i in range(4)])
    assert pixels(picture(maps)).shape == (9, 9)
    assert pixels(picture(maps))[[0, 0, 8, 8], [0, 8, 0, 8]].tolist() == [0, 85, 170, 255]


@pytest.mark.parametrize("shape", [(3,), (2, 2), (1, 1, 1, 1, 9), (4, 5000), (0, 3, 8, 8), (0, 9)])
def test_other_tensors_are_no_pictures(shape):
    assert picture(np.zeros(shape, np.float32)) is None


def test_numbers_that_are_not_finite_have_a_color():
    assert picture(np.full((5, 5), np.nan)) is not None
    assert pixels(picture(np.diag([np.inf, 1, 2, 3.0])))[0, 0] == 255


def test_what_lies_around_a_value_is_drawn(model_of, monkeypatch):
    pytest.importorskip("plotly")  # igraph comes with it
    hostile = "</svg><script>alert(1)</script>"
    model = model_of("g (float[2] x) => (float[2] y) { [one] h = Neg(x) [two] y = Relu(h) }")
    model.proto.graph.node[1].name = hostile
    around = Graph(GraphIndex.of(model)).around("h")

    drawn = html_of(around)

    assert drawn.count("<rect") == 4  # two nodes, an input and an output
    assert "h float [2]" in drawn
    assert "<script" not in drawn
    assert drawn.count("</svg>") == 1
    ElementTree.fromstring(drawn[: drawn.index("</svg>") + 6])
    monkeypatch.setattr(notebook, "find_spec", lambda _: None)
    assert html_of(around).startswith("<pre>")


def test_results_show_the_picture_of_their_page():
    whole, faulty = FIXTURES / "whole_model.onnx", FIXTURES / "faulty_constant.onnx"
    reference = FIXTURES / "references/whole_model.npz"

    ranked = osl.rank(faulty, against=whole)._repr_html_()
    compared = osl.compare_sets(faulty, reference, every=True)._repr_html_()
    found = osl.bisect(faulty, reference, quick=True)._repr_html_()

    assert "<svg" in ranked
    assert "What each node loses by itself" in ranked
    assert compared.count("<circle") + compared.count("<path d") - 1 == 11
    assert compared.count('stroke-width="2"') == 5  # crosses
    assert found.count("<img") == 3
    assert not any("<script" in html for html in (ranked, compared, found))
