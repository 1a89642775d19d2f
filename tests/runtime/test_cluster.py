"""Samples on a Dask cluster: the same answer bit for bit, whatever happens to its workers."""

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.debug.bisection import parts
from onnxsurgeon_lite.errors import UsageError

distributed = pytest.importorskip("distributed")

MODEL, OTHER = str(FIXTURES / "faulty_constant.onnx"), str(FIXTURES / "whole_model.onnx")


@pytest.fixture(scope="module")
def scheduler():
    """A cluster of two processes, which may take a gigabyte each."""
    how = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GiB"}
    with distributed.LocalCluster(dashboard_address=None, silence_logs=50, **how) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A file with rows of samples."""
    path = tmp_path_factory.mktemp("images") / "images.npz"
    rows = np.random.default_rng(0).standard_normal((60, 3, 20, 20)).astype(np.float32)
    np.savez(path, **{"input.1": rows})
    return path


@pytest.fixture(scope="module")
def alone(images):
    """What one runtime says."""
    return osl.compare_sets(MODEL, OTHER, images, jobs=1).to_json()


def of_cluster(scheduler, images, **how):
    return osl.compare_sets(MODEL, OTHER, images, cluster=scheduler.scheduler_address, **how)


def test_a_cluster_says_the_same_as_one_runtime(scheduler, images, alone, tmp_path):
    assert of_cluster(scheduler, images).to_json() == alone

    file = tmp_path / "rows.py"
    file.write_text(
        f"import numpy as np\ndef rows():\n    yield from np.load({str(images)!r})['input.1'][:, None]\n"
    )
    file.write_text(file.read_text() + "def gap(a, b):\n    return abs(a['31'] - b['31']).max()\n")
    how = {"metric": f"{file}:gap", "tolerance": 0.05}
    flowing = of_cluster(scheduler, f"{file}:rows", **how).to_json()
    assert flowing == osl.compare_sets(MODEL, OTHER, f"{file}:rows", jobs=1, **how).to_json()


METRIC = """
import os, signal, time, uuid
from pathlib import Path
import numpy as np
def gap(reference, actual):
    try:
        os.close(os.open({mark!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        {often}
        return 0.0
    {once}
    return 0.0
"""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
OUT_OF_MEMORY = "held = np.ones(1 << 30, np.uint8); time.sleep(60)"
RUNTIME_KILLED = """for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            os.kill(int(child), signal.SIGKILL)"""


def metric(folder, once, often="pass"):
    """A metric whose first call, on whichever worker, does something `once`; each other one does what is `often`."""
    mark, file = folder / "mark", folder / "metric.py"
    file.write_text(METRIC.format(mark=str(mark), once=once, often=often))
    return mark, f"{file}:gap"


@pytest.mark.parametrize("fate", [KILLED, OUT_OF_MEMORY], ids=["killed", "out of memory"])
def test_a_worker_that_is_lost_changes_nothing_and_is_told(
    fate, scheduler, images, alone, tmp_path
):
    lost, gap = metric(tmp_path, fate)

    found = of_cluster(scheduler, images, metric=gap)

    assert lost.exists()
    assert found.total == 60
    assert found.match
    assert found.to_json()["values"] == alone["values"]
    assert any("was lost" in line for line in found.repeated)


def test_others_go_on_while_a_worker_is_slow(scheduler, images, alone, tmp_path):
    done = tmp_path / "done"
    done.mkdir()
    waiting = f"""last = time.monotonic() + 300
    while len(os.listdir({str(done)!r})) < 3 and time.monotonic() < last:
        time.sleep(0.01)
    if time.monotonic() >= last:
        return 1.0"""
    slow, gap = metric(tmp_path, waiting, f"Path({str(done)!r}, uuid.uuid4().hex).touch()")

    scheduler.wait_for_workers(2)
    found = of_cluster(scheduler, images, metric=gap)

    assert slow.exists()
    assert found.match
    assert found.total == 60
    assert found.to_json()["values"] == alone["values"]


def test_a_runtime_that_is_killed_on_a_worker_is_started_again(scheduler, images, alone, tmp_path):
    lost, gap = metric(tmp_path, RUNTIME_KILLED)

    found = of_cluster(scheduler, images, metric=gap)

    assert lost.exists()
    assert found.match
    assert found.to_json()["values"] == alone["values"]


def test_values_are_recorded_and_searched_on_a_cluster(scheduler, images, tmp_path):
    address = scheduler.scheduler_address
    for name, how in (("one", {"jobs": 1}), ("many", {"cluster": address})):
        osl.record(OTHER, tmp_path / name, images, value="23,31", **how)
    files = ("index.json", "values.bin")
    one, many = (
        [(tmp_path / name / file).read_bytes() for file in files] for name in ("one", "many")
    )
    assert one == many

    result = osl.bisect(MODEL, tmp_path / "many", cluster=address, cause=False, quick=True)
    assert len(result.samples.failing) == 60


def test_no_scheduler_is_told(monkeypatch):
    monkeypatch.setattr("onnxsurgeon_lite.runtime.cluster._PATIENCE", 0.2)

    with pytest.raises(UsageError, match="no cluster answers at 'tcp://127.0.0.1:9'"):
        osl.compare_sets(MODEL, OTHER, cluster="tcp://127.0.0.1:9")


def test_the_command_starts_a_cluster_of_this_machine(images):
    words = ["compare", MODEL, OTHER, "--feeds", str(images), "--cluster", "local", "--jobs", "1"]
    done = CliRunner().invoke(app, words)

    assert done.exit_code == 1, done.output
    assert "MISMATCH in 60 of 60 samples" in done.output
    assert "dashboard: http" in done.output


def told(result):
    """What a search says, but for how it was run and where it wrote."""
    return {k: v for k, v in result.to_json().items() if k not in ("sessions", "reproducer")}


def chain(factor):
    """Forty products of a factor."""
    nodes = "".join(f"v{n} = Mul(v{n - 1}, factor) " for n in range(1, 41))
    head = f"chain (float[1,4] v0) => (float[1,4] v40) <float factor = {{{factor}}}>"
    return osl.build(f"{head} {{ {nodes} }}")


def test_a_cluster_judges_the_parts_of_a_model_on_one_sample(scheduler, tmp_path):
    references = FIXTURES / "references" / "whole_model.npz"
    faulty, there = FIXTURES / "faulty_attribute.onnx", scheduler.scheduler_address
    alone = osl.bisect(faulty, references, jobs=1, output=tmp_path / "alone")
    parted = osl.bisect(faulty, references, cluster=there, output=tmp_path / "parted")

    assert told(parted) == told(alone)
    assert [culprit.id for culprit in parted.culprits] == ["@6"]


@pytest.mark.parametrize("every", [1, 7])
def test_what_builds_up_from_part_to_part_is_searched_as_a_whole(scheduler, tmp_path, every):
    feeds = {"v0": np.ones((1, 4), np.float32)}
    values = [f"v{n}" for n in range(1, 41)]
    right = osl.run(chain(1.0), feeds, fetch=values)
    references = {**feeds, **{n: right[n] for n in values[every - 1 :: every]}}
    references["v40"] = right["v40"]
    off = chain(1.00002)  # each product keeps its tolerance, forty do not
    how = {"cause": False, "quick": every == 7}
    alone = osl.bisect(off, references, jobs=1, output=tmp_path / "alone", **how)
    there = scheduler.scheduler_address
    parted = osl.bisect(off, references, cluster=there, output=tmp_path / "parted", **how)

    assert alone.verdict != "agrees"
    assert told(parted) == told(alone)


def test_parts_are_of_about_the_same_size():
    assert parts._alike([1] * 8, 4) == [range(n, n + 2) for n in range(0, 8, 2)]
    assert parts._alike([9, 0, 0, 1], 2) == [range(1), range(1, 4)]
    assert parts._alike([1, 1], 3) == [range(1), range(1, 2)]
