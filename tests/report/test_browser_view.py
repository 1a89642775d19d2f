"""`view`: a page from a file, or from a server that computes tensors as they are looked at, and answers nobody else."""

import json
import re
import signal
import subprocess
import urllib.error
import urllib.request

import numpy as np
import pytest

import onnxsurgeon_lite as osl
from kit import COMMAND, FIXTURES
from kit.browsing import Visit
from onnxsurgeon_lite.errors import UsageError

MODEL, REFS = FIXTURES / "faulty_constant.onnx", FIXTURES / "references/whole_model.npz"


@pytest.fixture(scope="module")
def served():
    """A model that is served, with references."""
    with osl.view(MODEL, reference=REFS, open=False) as shown:
        yield shown.address


def asked(address: str, **headers: str) -> tuple[int, bytes]:
    """Status and body of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_a_chosen_node_shows_its_tensor_and_its_reference(browser, served):
    with Visit(browser, served) as visit:
        page = visit.open(served)
        for node in (4, 2):
            page.evaluate(f"choose(0, {node})")
            page.wait_for_selector(f"#live h2:has-text('(@{node})') ~ .tensor .js-plotly-plot")
        figures = page.locator("#live figcaption").all_inner_texts()

    assert visit.complaints == []
    assert [figure.split(",")[0] for figure in figures[:3]] == ["actual", "reference", "difference"]


def test_the_server_answers_only_who_knows_its_token_and_its_name(served):
    origin, token = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/([\w-]{40,})/", served).groups()

    assert asked(served)[0] == 200
    assert asked(f"{served}tensors/0")[0] == 200
    assert asked(served, Host="evil.example")[0] == 403
    assert asked(served, Host=f"localhost:{origin.rpartition(':')[2]}")[0] == 403
    for path in (
        "",
        "/",
        f"/{token[:-1]}/",
        "/favicon.ico",
        f"/{token}/../",
        f"/{token}/tensors/x",
    ):
        assert asked(origin + path)[0] == 404
    with pytest.raises(urllib.error.HTTPError, match="501"):
        urllib.request.urlopen(served, data=b"x")


def test_tensors_come_with_what_cannot_be_seen_of_them(served):
    found = json.loads(asked(f"{served}tensors/4")[1])

    assert [tensor["name"] for tensor in found["tensors"]] == ["25"]
    assert json.loads(asked(f"{served}tensors/99999")[1]) == {"tensors": [], "error": ""}
    reference = np.load(REFS)["25"]
    worst = found["tensors"][0]["worst"][0]
    assert worst["reference"] == pytest.approx(reference[tuple(worst["index"])])


def test_a_stored_result_marks_the_page(visit, tmp_path):
    result = tmp_path / "result.json"
    result.write_text(json.dumps(osl.bisect(MODEL, REFS, quick=True).to_json()))

    shown = osl.view(MODEL, result, output=tmp_path / "page.html", open=False)

    page = visit.open(shown.address)
    assert "Conv 'Conv_4' (@4)" in page.inner_text("#details")
    assert page.locator("#graphs .box.culprit").count() == 1
    result.write_text("[1]")
    with pytest.raises(UsageError, match="not the result of a command"):
        osl.view(MODEL, result, open=False)


def test_numbers_of_a_stored_result_color_the_nodes(tmp_path):
    result = tmp_path / "result.json"
    ranked = osl.rank(MODEL, against=FIXTURES / "whole_model.onnx")
    result.write_text(json.dumps(ranked.to_json()))

    osl.view(MODEL, result, output=tmp_path / "page.html", open=False)

    page = (tmp_path / "page.html").read_text()
    held = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    own = next(m for m in held["measures"] if m["title"] == "own db")
    assert dict(zip(own["nodes"], own["numbers"], strict=True))[4] == pytest.approx(40.04, abs=0.01)
    assert own["worse"] == "low"


def test_a_number_that_no_float_holds_colors_nothing(tmp_path):
    result = tmp_path / "result.json"
    result.write_text(f'{{"nodes": [{{"id": "@1", "huge": 1{"0" * 400}, "small": 1}}]}}')

    osl.view(MODEL, result, output=tmp_path / "page.html", open=False)

    page = (tmp_path / "page.html").read_text()
    held = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert [measure["title"] for measure in held["measures"]] == ["small"]


def test_ctrl_c_ends_the_server(tmp_path):
    command = [*COMMAND, "view", str(MODEL), "--serve", "--no-open"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # maybe ignored here
    ) as run:
        try:
            address = run.stdout.readline().strip()
            assert asked(address)[0] == 200
            run.send_signal(signal.SIGINT)
            _, said = run.communicate(timeout=60)
        finally:
            run.kill()

    assert run.returncode == 0
    assert "Traceback" not in said
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address)
