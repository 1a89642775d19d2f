"""References of ExecuTorch: ETDumps, with the buffer of their numbers.

fixtures/executorch holds Linear(12, 24), ReLU, Linear(24, 20) and Softmax as ONNX, feeds, and what
ExecuTorch 1.5.1 stored of a run on them (portable kernels; the end of the buffer, which is empty, is cut off).
"""

import shutil

import flatbuffers
import numpy as np
import pytest
from typer.testing import CliRunner

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import SurgeonError

KEPT = FIXTURES / "executorch"
DUMP = KEPT / "layers.etdp"
FLOAT, HALF, COMPLEX = 6, 5, 9


class Writer(flatbuffers.Builder):
    """Writes tables of the schema; fields by their numbers."""

    def table(self, **fields):
        """Write a table: `o1` is an offset in field 1, `i2` an int32, `l3` an int64, `b0` a byte."""
        self.StartObject(8)
        for name, value in fields.items():
            slot = int(name[1:])
            match name[0]:
                case "o":
                    self.PrependUOffsetTRelativeSlot(slot, value, 0)
                case "i":
                    self.PrependInt32Slot(slot, value, -1)
                case "l":
                    self.PrependInt64Slot(slot, value, 0)
                case "b":
                    self.PrependInt8Slot(slot, value, 0)
        return self.EndObject()

    def vector(self, offsets):
        self.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.PrependUOffsetTRelative(offset)
        return self.EndVector()

    def sizes(self, numbers):
        self.StartVector(8, len(numbers), 8)
        for number in reversed(numbers):
            self.PrependInt64(number)
        return self.EndVector()

    def tensor(self, shape, strides, kind=FLOAT, offset=0):
        sizes, steps = self.sizes(shape), self.sizes(strides)
        return self.table(b0=kind, o1=sizes, o2=steps, l3=offset)

    def stored(self, instruction, *tensors):
        """Write the event of a list of tensors that an instruction returned."""
        held = self.table(o0=self.vector(tensors))
        debugged = self.table(i1=instruction, o2=self.table(b0=6, o2=held))
        return self.table(o2=debugged)

    def run(self, *events):
        return self.table(o3=self.vector(events))

    def write(self, path, runs, numbers=b"\0" * 64):
        self.Finish(self.table(o1=self.vector(runs)), file_identifier=b"ED00")
        path.write_bytes(self.Output())
        path.with_suffix(".bin").write_bytes(numbers)
        return path


@pytest.fixture
def dump(tmp_path):
    return shutil.copytree(KEPT, tmp_path / "kept") / DUMP.name


def test_each_instruction_and_output_has_the_numbers_of_the_run():
    found = osl.open_references(DUMP)
    feeds = dict(np.load(KEPT / "feeds.npz"))
    ran = osl.run(KEPT / "layers.onnx", feeds, fetch=["/Relu_output_0"])

    assert list(found) == [
        "output_0",
        "0.permute_copy.out",
        "1.addmm.out",
        "2.relu.out",
        "3.permute_copy.out",
        "4.addmm.out",
        "5._softmax.out",
    ]
    assert found.outputs == ("output_0",)
    np.testing.assert_allclose(found.read("2.relu.out"), ran["/Relu_output_0"], rtol=1e-4)
    np.testing.assert_array_equal(found.read("output_0"), found.read("5._softmax.out"))


def test_a_fault_is_found_between_the_instructions(tmp_path):
    wrong = tmp_path / "wrong.onnx"
    osl.save(osl.set_attr(KEPT / "layers.onnx", "/b/Gemm", {"alpha": 1.1}), wrong)

    result = CliRunner().invoke(
        app,
        ["bisect", str(wrong), "--reference", str(DUMP), "--feeds", str(KEPT / "feeds.npz")]
        + ["-o", str(tmp_path / "culprit")],
    )

    assert result.exit_code == 1, result.output
    assert "wrong node: Gemm '/b/Gemm'" in result.output
    assert "alpha=1.0" in result.output


def test_a_run_is_chosen_and_the_tensors_of_a_list_are_numbered(tmp_path):
    to = Writer()
    runs = [
        to.run(),
        to.run(to.stored(3, to.tensor([2], [1]), to.tensor([2], [1], offset=8))),
        to.run(to.stored(3, to.tensor([2], [1], offset=16))),
    ]
    path = to.write(tmp_path / "d.etdp", runs, np.arange(6, dtype=np.float32).tobytes())

    found = osl.open_references(path)
    assert [(name, found.read(name).tolist()) for name in found] == [
        ("3.delegate", [0, 1]),
        ("3.delegate.1", [2, 3]),
    ]
    assert "2 samples: using number 0" in found.notes[0]
    assert osl.open_references(path, sample=1).read("3.delegate").tolist() == [4, 5]


def test_tensors_that_cannot_be_read_are_left_out_by_name(tmp_path):
    to = Writer()
    tensors = [
        to.tensor([2, 3], [1, 2]),
        to.tensor([2], [1], COMPLEX),
        to.tensor([1, 4], [9, 1], HALF, 8),
    ]
    path = to.write(tmp_path / "d.etdp", [to.run(to.stored(0, *tensors))])

    found = osl.open_references(path)

    assert [found.read(name).dtype for name in found] == [np.float16]
    assert len(found.notes) == 2
    assert "'0.delegate' is not stored row by row" in found.notes[0]
    assert "'0.delegate.1' has ExecuTorch's dtype 9" in found.notes[1]


def test_a_buffer_that_is_missing_or_cut_is_one_error(dump):
    buffer = dump.with_suffix(".bin")
    buffer.write_bytes(buffer.read_bytes()[:1000])
    with pytest.raises(SurgeonError, match="1000 bytes"):
        osl.open_references(dump)
    buffer.unlink()
    with pytest.raises(SurgeonError, match="debug buffer .* is missing"):
        osl.open_references(dump)
    (dump.parent / "debug_output.bin").symlink_to(DUMP.with_suffix(".bin"))
    with pytest.raises(SurgeonError, match="link out of its folder"):
        osl.open_references(dump)


@pytest.mark.parametrize("offset", [-4, 1 << 62])
def test_a_tensor_outside_the_buffer_is_one_error(tmp_path, offset):
    to = Writer()
    path = to.write(tmp_path / "d.etdp", [to.run(to.stored(0, to.tensor([2], [1], offset=offset)))])
    with pytest.raises(SurgeonError, match="64 bytes"):
        osl.open_references(path)


def test_what_is_no_etdump_or_holds_no_tensors_is_one_error(tmp_path):
    path = tmp_path / "d.etdp"
    path.write_bytes(b"x" * 100)
    with pytest.raises(SurgeonError, match="no ETDump"):
        osl.open_references(path)
    to = Writer()
    with pytest.raises(SurgeonError, match="holds no tensors"):
        osl.open_references(to.write(path, [to.run()]))


def test_vectors_that_overlap_end_soon(tmp_path):
    to = Writer()
    event = to.stored(0, to.tensor([2], [1]))
    run = to.run(*[event] * 30_000)
    with pytest.raises(SurgeonError, match="overlap"):
        osl.open_references(to.write(tmp_path / "d.etdp", [run] * 30_000))
