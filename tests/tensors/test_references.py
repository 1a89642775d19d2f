"""Reference sets: each format gives back what went in, or refuses it by name; damaged files are told."""

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
from onnx import SequenceProto, TensorProto, helper, numpy_helper

from onnxsurgeon_lite import open_references, save_tensors
from onnxsurgeon_lite.errors import ReferenceSetError, UnknownNameError, WriteError
from onnxsurgeon_lite.tensors.references import FolderWriter, write_test_data

NUMBERS = [
    "bool",
    "complex128",
    "complex64",
    "float16",
    "float32",
    "float64",
    "int16",
    "int32",
    "int64",
    "int8",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]
SMALL = [
    "bfloat16",
    "float4_e2m1fn",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "int2",
    "int4",
    "uint2",
    "uint4",
]
IN_SAFETENSORS = [name for name in NUMBERS if name != "complex128"] + [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def arrays(name: str) -> dict[str, np.ndarray]:
    """An array, one with an odd number of elements, an empty one, a scalar, one that is not contiguous."""
    ramp = np.arange(6).reshape(2, 3) % 2
    return {
        "matrix": ramp.astype(dtype_of(name)),
        "odd": np.ones(5).astype(dtype_of(name)),
        "empty": np.zeros((0, 4), dtype_of(name)),
        "scalar": np.ones(()).astype(dtype_of(name)),
        "turned": ramp.astype(dtype_of(name)).T,
    }


def same(stored: object, expected: np.ndarray) -> bool:
    return (
        isinstance(stored, np.ndarray)
        and stored.shape == expected.shape
        and stored.dtype == expected.dtype
        and stored.tobytes() == expected.tobytes()
    )


def round_trip(path: Path, values: dict[str, np.ndarray]) -> None:
    save_tensors(path, values)
    stored = open_references(path)

    assert list(stored) == list(values)
    for name, value in values.items():
        assert same(stored.read(name), value), name


@pytest.mark.parametrize("dtype", [*NUMBERS, *SMALL])
def test_a_folder_holds_every_dtype(dtype, tmp_path):
    round_trip(tmp_path / "refs", arrays(dtype))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_an_npz_holds_numpys_dtypes(dtype, tmp_path):
    round_trip(tmp_path / "refs.npz", arrays(dtype))


@pytest.mark.parametrize("dtype", IN_SAFETENSORS)
def test_a_safetensors_file_holds_its_dtypes(dtype, tmp_path):
    values = arrays(dtype)
    path = tmp_path / "refs.safetensors"

    save_tensors(path, values)
    stored = open_references(path)

    assert set(stored) == set(values)
    assert all(same(stored.read(name), value) for name, value in values.items())


@pytest.mark.parametrize("dtype", [*NUMBERS, *SMALL])
def test_a_test_data_set_holds_every_dtype(dtype, tmp_path):
    values = arrays(dtype)
    write_test_data(tmp_path / "test_data_set_0", {"odd": values["odd"]}, values)

    stored = open_references(tmp_path / "test_data_set_0")

    assert all(same(stored.read(name), value) for name, value in values.items())


@pytest.mark.parametrize("suffix", ["", ".npz", ".safetensors"])
def test_names_are_kept_whatever_they_hold_and_never_become_paths(suffix, tmp_path):
    names = [
        "../../x",
        "/etc/x",
        "a b,c",
        "new\nline",
        "[red]x",
        "é",
        "file",
        "allow_pickle",
        "x.npy",
    ]
    values = {name: np.full(2, i, np.float32) for i, name in enumerate(names)}
    folder = tmp_path / "deep" / "down"
    folder.mkdir(parents=True)

    save_tensors(folder / f"refs{suffix}", values)
    stored = open_references(folder / f"refs{suffix}")

    assert set(stored) == set(names)
    assert all(same(stored.read(name), value) for name, value in values.items())
    assert [path.name for path in folder.iterdir()] == [f"refs{suffix}"]
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_folder_holds_strings_and_sequences(tmp_path):
    strings = np.array([["a", "é"], ["", "b,\n"]], object)
    sequence = [np.ones(2, ml_dtypes.bfloat16), np.zeros((0, 3), np.int64)]

    save_tensors(tmp_path / "refs", {"strings": strings, "sequence": sequence, "none": []})
    stored = open_references(tmp_path / "refs")

    assert stored.read("strings").tolist() == strings.tolist()
    read = stored.read("sequence")
    assert all(same(r, s) for r, s in zip(read, sequence, strict=True))
    assert stored.read("none") == []


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    "value",
    [
        np.array(["a"], object),
        [np.ones(2)],
        np.ones(2, ml_dtypes.int4),
        np.ones(3, ml_dtypes.float4_e2m1fn),
    ],
    ids=["strings", "sequence", "int4", "float4"],
)
def test_what_a_format_cannot_hold_is_refused_by_name(suffix, value, tmp_path):
    path = tmp_path / f"refs{suffix}"

    with pytest.raises(ReferenceSetError, match=r"cannot hold 'odd one'") as caught:
        save_tensors(path, {"fine": np.ones(2), "odd one": value})

    assert repr(str(tmp_path / "refs")) in caught.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2"])
def test_an_npz_refuses_what_it_would_give_back_as_something_else(dtype, tmp_path):
    with pytest.raises(ReferenceSetError, match="cannot hold 'x'"):
        save_tensors(tmp_path / "refs.npz", {"x": np.ones(2, dtype_of(dtype))})


def test_a_name_that_ends_early_in_an_archive_is_refused(tmp_path):
    with pytest.raises(ReferenceSetError, match="cannot hold"):
        save_tensors(tmp_path / "refs.npz", {"x\0a": np.ones(2), "x\0b": np.ones(2)})


def test_a_folder_can_be_written_with_the_standard_library_alone(tmp_path):
    floats, shorts = struct.pack("<3f", 1, 2, 3), struct.pack("<2h", -1, 7)
    values = [
        {"name": "f", "dtype": "float", "shape": [3], "offset": 0, "length": 12},
        {"name": "i", "dtype": "int16", "shape": [1, 2], "sample": 0, "offset": 12, "length": 4},
        {"name": "b", "dtype": "bfloat16", "shape": [1], "offset": 16, "length": 2, "scope": "a.b"},
        {"name": "n", "dtype": "int4", "shape": [3], "offset": 18, "length": 2},
        {"name": "other", "dtype": "float", "shape": [3], "sample": 1, "offset": 0, "length": 12},
    ]
    (tmp_path / "values.bin").write_bytes(floats + shorts + b"\x80\x3f" + b"\xf1\x07")
    (tmp_path / "index.json").write_text(json.dumps({"values": values}))

    stored = open_references(tmp_path)
    second = open_references(tmp_path, sample=1)

    assert list(stored) == ["f", "i", "b", "n"]
    assert stored.read("f").tolist() == [1, 2, 3]
    assert stored.read("i").tolist() == [[-1, 7]]
    assert same(stored.read("b"), np.ones(1, ml_dtypes.bfloat16))
    assert stored.read("n").astype(int).tolist() == [1, -1, 7]
    assert stored.entries["b"].scope == "a.b"
    assert list(second) == ["other"]


def test_what_a_folder_says_of_itself(tmp_path):
    with FolderWriter(tmp_path / "refs") as writer:
        writer.add("x", np.ones((2, 1), np.float16), {"scope": "encoder.0"})
        writer.add("x", np.zeros((2, 1), np.float16), sample=1)

    index = json.loads((tmp_path / "refs" / "index.json").read_text())

    assert (index["format"], index["version"]) == ("onnxsurgeon-references", 1)
    assert index["values"] == [
        {
            "name": "x",
            "sample": 0,
            "offset": 0,
            "dtype": "float16",
            "shape": [2, 1],
            "length": 4,
            "scope": "encoder.0",
        },
        {"name": "x", "sample": 1, "offset": 4, "dtype": "float16", "shape": [2, 1], "length": 4},
    ]


def interrupted(folder: Path) -> None:
    with FolderWriter(folder) as writer:
        writer.add("x", np.zeros(2))
        raise KeyError


def test_an_interrupted_recording_leaves_the_older_one(tmp_path):
    save_tensors(tmp_path / "refs", {"x": np.ones(2)})
    before = {path.name: path.read_bytes() for path in (tmp_path / "refs").iterdir()}

    with pytest.raises(KeyError):
        interrupted(tmp_path / "refs")

    assert {path.name: path.read_bytes() for path in (tmp_path / "refs").iterdir()} == before


@pytest.mark.parametrize("older", [False, True])
def test_a_killed_recording_leaves_nothing_behind(older, tmp_path):
    if older:
        save_tensors(tmp_path / "refs", {"x": np.ones(2)})
    before = sorted(tmp_path.rglob("*"))
    writing = """
import os, sys, numpy as np
from onnxsurgeon_lite.tensors.references import FolderWriter
writer = FolderWriter(sys.argv[1]).__enter__()
writer.add("x", np.zeros(1 << 20))
os.kill(os.getpid(), 9)
"""

    done = subprocess.run([sys.executable, "-c", writing, tmp_path / "refs"])

    assert done.returncode == -9
    assert sorted(tmp_path.rglob("*")) == before


def test_a_recording_is_whole_where_files_cannot_be_linked(tmp_path, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refused)

    save_tensors(tmp_path / "refs", {"x": np.arange(2)})

    assert open_references(tmp_path / "refs").read("x").tolist() == [0, 1]


def test_an_interrupted_recording_leaves_no_empty_folder(tmp_path):
    with pytest.raises(KeyError):
        interrupted(tmp_path / "refs")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["missing/refs", "missing/refs.npz"])
def test_a_missing_folder_is_named_with_the_command_that_makes_it(name, tmp_path):
    with pytest.raises(WriteError) as caught:
        save_tensors(tmp_path / name, {"x": np.ones(2)})

    assert f"mkdir -p {tmp_path / 'missing'}" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_numpys_own_files_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.array(["s"]))
    np.savez_compressed(tmp_path / "b.npz", x=np.arange(3))
    np.save(tmp_path / "one.npy", np.asfortranarray(np.arange(6).reshape(2, 3)))

    assert open_references(tmp_path / "a.npz").read("y").tolist() == ["s"]
    assert open_references(tmp_path / "b.npz").read("x").tolist() == [0, 1, 2]
    assert same(open_references(tmp_path / "one.npy").read("one"), np.arange(6).reshape(2, 3))


def test_bfloat16_comes_back_from_numpys_two_byte_voids(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(2, ml_dtypes.bfloat16))

    assert same(open_references(tmp_path / "a.npz").read("x"), np.ones(2, ml_dtypes.bfloat16))


def test_other_voids_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(2, "V1"))

    with pytest.raises(ReferenceSetError, match="numpy files do not keep its meaning"):
        open_references(tmp_path / "a.npz").read("x")


def test_numbers_of_the_other_byte_order_are_turned(tmp_path):
    np.save(tmp_path / "x.npy", np.array([1, 2], ">f4"))

    assert same(open_references(tmp_path / "x.npy").read("x"), np.array([1, 2], np.float32))


def test_a_folder_of_npy_files_names_by_relative_path(tmp_path):
    (tmp_path / "block" / "0").mkdir(parents=True)
    np.save(tmp_path / "block" / "0" / "out.1.npy", np.ones(1))
    np.save(tmp_path / "y.npy", np.ones(2))

    stored = open_references(tmp_path)

    assert set(stored) == {"block/0/out.1", "y"}
    assert stored.read("block/0/out.1").shape == (1,)


def test_an_archive_is_read_member_by_member(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("bad.npy", b"no array at all")
        buffer = io.BytesIO()
        np.save(buffer, np.ones(2))
        archive.writestr("good.npy", buffer.getvalue())

    stored = open_references(path)

    assert stored.read("good").tolist() == [1, 1]
    with pytest.raises(ReferenceSetError, match=r"bad\.npy"):
        stored.read("bad")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickled_arrays_are_refused_and_not_run(suffix, tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path(tmp_path / "exploded").touch, ()

    array = np.array([Bomb()], object)
    path = tmp_path / f"x{suffix}"
    if suffix == ".npy":
        np.save(path, array)
    else:
        np.savez(path, x=array)

    with pytest.raises(ReferenceSetError, match=r"(?i)object arrays|pickle"):
        open_references(path).read("x")
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_is_no_array(tmp_path):
    (tmp_path / "x.npy").write_bytes(pickle.dumps([1, 2]))

    with pytest.raises(ReferenceSetError):
        open_references(tmp_path / "x.npy").read("x")


def named(array: np.ndarray, name: str = "") -> bytes:
    return numpy_helper.from_array(array, name).SerializeToString()


def test_a_test_data_set_with_names(tmp_path):
    (tmp_path / "input_0.pb").write_bytes(named(np.ones(2), "second"))
    (tmp_path / "output_0.pb").write_bytes(named(np.zeros(2), "result"))

    stored = open_references(tmp_path, ["first", "second"], ["y"])

    assert set(stored) == {"second", "result"}


def test_a_test_data_set_without_names_counts_the_models_own(tmp_path):
    for number in range(11):
        (tmp_path / f"input_{number}.pb").write_bytes(named(np.full(1, number)))
    (tmp_path / "output_1.pb").write_bytes(named(np.full(1, 100)))

    stored = open_references(tmp_path, [f"x{i}" for i in range(11)], ["y", "z"])

    assert set(stored) == {*(f"x{i}" for i in range(11)), "z"}
    assert stored.read("x10").tolist() == [10]
    assert stored.read("z").tolist() == [100]


def test_a_test_data_set_with_sequences(tmp_path):
    sequence = SequenceProto(name="s", elem_type=SequenceProto.TENSOR)
    sequence.tensor_values.append(numpy_helper.from_array(np.arange(3)))
    (tmp_path / "input_0.pb").write_bytes(sequence.SerializeToString())
    sequence.ClearField("name")
    (tmp_path / "input_1.pb").write_bytes(sequence.SerializeToString())
    del sequence.tensor_values[:]
    (tmp_path / "input_2.pb").write_bytes(sequence.SerializeToString())

    stored = open_references(tmp_path, ["a", "b", "c"])

    assert stored.read("s")[0].tolist() == [0, 1, 2]
    assert stored.read("b")[0].tolist() == [0, 1, 2]
    assert stored.read("c") == []


def test_of_several_samples_the_first_is_taken_and_it_is_said(tmp_path):
    for number in (0, 1, 10):
        write_test_data(tmp_path / f"test_data_set_{number}", {"x": np.full(1, number)}, {})

    stored = open_references(tmp_path)

    assert stored.read("x").tolist() == [0]
    assert "3 samples" in stored.notes[0]
    assert open_references(tmp_path, sample=2).read("x").tolist() == [10]


def broken_file(kind: str, folder: Path) -> Path:
    """A set of that kind, its end cut off."""
    path = folder / f"refs{kind}"
    save_tensors(path, {"x": np.ones(100), "y": np.ones(100)})
    damaged = path / "values.bin" if kind == "" else path
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-50])
    return path


@pytest.mark.parametrize("kind", ["", ".npz", ".safetensors"])
def test_a_truncated_set_is_refused(kind, tmp_path):
    path = broken_file(kind, tmp_path)

    with pytest.raises(ReferenceSetError, match=r"refs"):
        open_references(path).read("y")


def test_a_truncated_array_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(100))
    data = (tmp_path / "x.npy").read_bytes()

    for length in (0, 5, 60, len(data) - 1):
        (tmp_path / "x.npy").write_bytes(data[:length])
        with pytest.raises(ReferenceSetError, match=r"x\.npy"):
            open_references(tmp_path / "x.npy").read("x")


def test_a_damaged_compressed_member_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(1000))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[200:220] = b"\xff" * 20
    (tmp_path / "a.npz").write_bytes(data)

    with pytest.raises(ReferenceSetError, match="cannot read"):
        open_references(tmp_path / "a.npz").read("x")


VALUE = {"name": "x", "dtype": "float", "shape": [1], "offset": 0, "length": 4}


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"values": 3}',
        b'{"values": ["x"]}',
        b'{"values": [["x"]]}',
        b'{"version": 2, "values": []}',
        *(
            json.dumps({"values": [VALUE | change]}).encode()
            for change in (
                {"offset": "0"},
                {"offset": -4},
                {"length": -4},
                {"length": 400},
                {"length": 3},
                {"dtype": "float5"},
                {"dtype": 1},
                {"shape": ["a"]},
                {"shape": [-1]},
                {"shape": [1 << 60]},
                {"shape": 7},
                {"dtype": "string"},
                {"kind": "sequence"},
            )
        ),
    ],
)
def test_a_damaged_index_is_refused(index, tmp_path):
    (tmp_path / "values.bin").write_bytes(b"\xff\xff\xff\x7f")
    (tmp_path / "index.json").write_bytes(index)

    with pytest.raises(ReferenceSetError):
        open_references(tmp_path).read("x")


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b'{"x": 1}',
        b'{"x": {"dtype": "F32", "shape": [1]}}',
        b'{"x": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
    ],
)
def test_a_damaged_safetensors_header_is_refused(header, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")

    with pytest.raises(ReferenceSetError):
        open_references(path).read("x")


@pytest.mark.parametrize("data", [b"", b"\x01", b"\xff" * 8, b"\xff" * 64])
@pytest.mark.parametrize("suffix", [".npz", ".npy", ".safetensors", ".pb"])
def test_garbage_is_refused(suffix, data, tmp_path):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(data)

    with pytest.raises(ReferenceSetError):
        open_references(path).read("x")


def test_what_is_no_reference_set_is_told(tmp_path):
    (tmp_path / "x.txt").write_text("hello")

    with pytest.raises(ReferenceSetError, match="does not exist: no tensors can be read"):
        open_references(tmp_path / "missing.npz")
    with pytest.raises(ReferenceSetError, match="not a known kind of reference set"):
        open_references(tmp_path / "x.txt")
    with pytest.raises(ReferenceSetError, match="holds no reference tensors"):
        open_references(tmp_path)


def test_a_name_that_a_set_lacks_is_told_with_the_closest(tmp_path):
    save_tensors(tmp_path / "refs", {"h_relu": np.ones(1)})

    with pytest.raises(UnknownNameError) as caught:
        open_references(tmp_path / "refs").read("h_rel")

    assert caught.value.closest == ["h_relu"]


def test_safetensors_own_files_are_read(tmp_path):
    values = {"x": np.arange(3, dtype=np.int32), "y": np.ones((2, 0), np.float16)}
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file(values, path, metadata={"a": "b"})

    stored = open_references(path)

    assert set(stored) == {"x", "y"}
    assert all(same(stored.read(name), value) for name, value in values.items())


def test_strings_in_a_test_data_set_are_text(tmp_path):
    tensor = helper.make_tensor("s", TensorProto.STRING, [2], [b"a", "é".encode()])
    (tmp_path / "input_0.pb").write_bytes(tensor.SerializeToString())

    assert open_references(tmp_path).read("s").tolist() == ["a", "é"]


def test_an_adapter_of_onnxruntime_is_read(tmp_path):
    held = {
        "q.lora_A": np.arange(6, dtype=np.float32).reshape(2, 3),
        "q.lora_B": np.linspace(0, 1, 12).astype(np.float16).reshape(4, 3),
    }
    file = onnxruntime.AdapterFormat()
    file.set_parameters(
        {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in held.items()}
    )
    place = tmp_path / "math.onnx_adapter"
    file.export_adapter(str(place))

    found = open_references(place)

    assert {*found} == {*held}
    for name, array in held.items():
        read = found.read(name)
        assert read.dtype == array.dtype
        np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("content", [b"\x08\0\0\0TORT", b"\x08\0\0\0ELSE" + bytes(64), b""])
def test_a_damaged_adapter_is_told(content, tmp_path):
    (tmp_path / "a.onnx_adapter").write_bytes(content)

    with pytest.raises(ReferenceSetError):
        open_references(tmp_path / "a.onnx_adapter")
