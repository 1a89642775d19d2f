"""References from PyTorch: what each module returned, before anything overwrote it, in a folder that travels."""

import dataclasses
import io
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from typer.testing import CliRunner, Result

import onnxsurgeon_lite as osl
from kit import FIXTURES
from onnxsurgeon_lite import open_references, save_tensors
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.errors import ReferenceSetError, UsageError
from onnxsurgeon_lite.recording import torch_recorder
from onnxsurgeon_lite.recording.from_torch import record_factory
from onnxsurgeon_lite.recording.torch_recorder import RecordError, record_module
from onnxsurgeon_lite.tensors.references import FolderWriter


class Net(torch.nn.Module):
    """A shared in-place activation, a container, and structured outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.relu = torch.nn.ReLU(inplace=True)
        self.block = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
        self.parts = Parts()

    def forward(self, x, scale=None):
        x = self.relu(self.first(x))
        x = self.relu(self.block(x))
        return {"y": x if scale is None else x * scale, "parts": self.parts(x), "none": None}


@dataclasses.dataclass
class Pair:
    one: torch.Tensor
    other: object


class Parts(torch.nn.Module):
    def forward(self, x):
        return (x.sum(), Pair(x.half(), [x.bfloat16(), None]))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def recorded(module, args, folder: Path, **options):
    record_module(module, args, folder=folder, **options)
    return open_references(folder)


def test_every_module_s_output_is_stored_under_its_path(net, tmp_path):
    x = torch.randn(2, 4)

    stored = recorded(net, (x,), tmp_path / "refs")
    with torch.no_grad():
        first = net.first(x)
        block = net.block[0](first.relu())

    np.testing.assert_array_equal(stored.read("x"), x.numpy())
    np.testing.assert_array_equal(stored.read("first"), first.numpy())
    np.testing.assert_array_equal(stored.read("block.0"), block.numpy())
    assert stored.entries["x"].is_input
    assert not stored.entries["first"].is_input


def test_what_an_in_place_module_overwrites_is_stored_before(net, tmp_path):
    stored = recorded(net, (torch.randn(8, 4),), tmp_path / "refs")

    assert (stored.read("first") < 0).any()
    np.testing.assert_array_equal(stored.read("relu"), np.maximum(stored.read("first"), 0))


def test_the_calls_of_a_shared_module_are_numbered(net, tmp_path):
    stored = recorded(net, (torch.randn(8, 4),), tmp_path / "refs")

    np.testing.assert_array_equal(stored.read("relu#2"), np.maximum(stored.read("block"), 0))


class Named(torch.nn.Module):
    """Its input, two of its modules and the class of the whole have names in common."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.Named = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, head):
        return self.head(self.Named(self.head(head))).relu()


def test_an_input_keeps_its_name_and_the_module_of_that_name_has_another(tmp_path):
    module, x = Named(), torch.randn(2, 4)

    stored = recorded(module, (x,), tmp_path / "refs")

    assert list(stored) == ["head", "head#1", "Named", "head#2", "Named#1"]
    np.testing.assert_array_equal(stored.read("head"), x.numpy())
    np.testing.assert_array_equal(stored.read("head#1"), module.head(x).detach().numpy())
    np.testing.assert_array_equal(stored.read("Named#1"), module(x).detach().numpy())
    assert [stored.entries[name].scope for name in stored] == ["", "head", "Named", "head", ""]


@pytest.mark.filterwarnings("ignore")
def test_an_operator_of_the_name_of_an_input_is_noted(tmp_path):
    x, folder = torch.randn(2, 4), tmp_path / "refs"

    done = record_module(Named(), x, folder=folder, operators=True, input_names=["linear"])

    assert done.notes == ["'linear' was not recorded again: another value has this name"]
    np.testing.assert_array_equal(open_references(folder).read("linear"), x.numpy())


def test_parts_of_outputs_are_named_and_keep_their_dtype(net, tmp_path):
    stored = recorded(net, (torch.randn(2, 4),), tmp_path / "refs")

    names = [name for name in stored if name.startswith("parts")]
    assert names == ["parts[0]", "parts[1][one]", "parts[1][other][0]"]
    assert [stored.read(name).dtype.name for name in names] == ["float32", "float16", "bfloat16"]
    assert stored.read("parts[0]").shape == ()
    assert "Net[y]" in stored


class Cached(torch.nn.Module):
    """Returns an object that holds tensors, as transformers' models do."""

    def forward(self, x, cache):
        return {"y": x, "cache": cache, "name": "y", "size": 1, "none": None}


def test_an_object_that_is_no_tensor_is_noted(tmp_path):
    args = torch.randn(2, 4), io.StringIO("cache")

    notes = record_module(Cached(), args, folder=tmp_path / "refs", input_names=["x"]).notes

    assert notes == ["'Cached[cache]' was not recorded: it is a StringIO"]
    assert list(open_references(tmp_path / "refs")) == ["x", "Cached[y]"]


def test_an_entry_names_module_class_and_calling_line(net, tmp_path):
    entry = recorded(net, (torch.randn(2, 4),), tmp_path / "refs").entries["block.0"]

    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "self.relu(self.block(x))" in text
    )
    assert (entry.scope, entry.class_name) == ("block.0", "torch.nn.modules.linear.Linear")
    assert entry.source == f"test_torch_recorder.py:{line}"


def test_modules_are_left_as_they_were(net, tmp_path):
    net.block.eval()

    recorded(net, (torch.randn(2, 4),), tmp_path / "refs")

    assert net.training
    assert not net.block.training
    assert not any(part._forward_hooks for part in net.modules())


@pytest.mark.parametrize("trains", [True, False])
def test_a_module_that_would_drop_out_in_training_is_said_to_be_recorded_in_evaluation(
    trains, tmp_path
):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).train(trains)

    notes = record_module(module, torch.ones(2, 4), folder=tmp_path / "refs").notes

    said = "recorded in evaluation mode; a Dropout was in training mode"
    assert notes == ([said] if trains else [])


def test_several_samples_are_kept_apart(net, tmp_path):
    one, other = torch.randn(2, 4), torch.randn(3, 4)

    recorded(net, [(one,), (other,)], tmp_path / "refs")

    for number, x in enumerate((one, other)):
        stored = open_references(tmp_path / "refs", sample=number)
        np.testing.assert_array_equal(stored.read("x"), x.numpy())
        assert stored.read("first").shape == x.shape


def test_chosen_scopes_alone_are_stored(net, tmp_path):
    stored = recorded(net, (torch.randn(2, 4),), tmp_path / "refs", scopes=["block"])

    assert list(stored) == ["x", "block.0", "block.1", "block"]


def test_a_shared_module_is_stored_under_the_path_that_was_chosen(tmp_path):
    layer = torch.nn.Linear(4, 4)
    twice = torch.nn.Sequential(layer, torch.nn.Sequential(layer))

    stored = recorded(twice, (torch.randn(2, 4),), tmp_path / "refs", scopes=["1.0"])

    assert list(stored) == ["input", "1.0", "1.0#2"]


def test_a_value_that_several_modules_return_is_written_once(tmp_path):
    chain = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4)))

    recorded(chain, (torch.randn(2, 4),), tmp_path / "refs")
    values = json.loads((tmp_path / "refs" / "index.json").read_text())["values"]

    assert [v["name"] for v in values] == ["input", "0.0", "0", "Sequential"]
    assert len({v["offset"] for v in values}) == 2


class Tied(torch.nn.Module):
    """The first and the last layer have one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(9, 4)
        self.head = torch.nn.Linear(4, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


def test_modules_with_tied_weights_are_stored_apart(tmp_path):
    torch.manual_seed(0)
    tied, ids = Tied(), torch.tensor([[1, 8, 3]])

    stored = recorded(tied, (ids,), tmp_path / "refs")

    assert list(stored) == ["ids", "embed", "head", "Tied"]
    weight = tied.embed.weight.detach().numpy()
    np.testing.assert_array_equal(stored.read("embed"), weight[[[1, 8, 3]]])
    np.testing.assert_allclose(stored.read("head"), weight[[[1, 8, 3]]] @ weight.T, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_module_in_half_precision_is_stored_bit_by_bit(net, dtype, tmp_path):
    x = torch.randn(2, 4, dtype=dtype)

    stored = recorded(net.to(dtype), (x,), tmp_path / "refs")

    with torch.no_grad():
        first = net.first(x)
    found = stored.read("first")
    assert found.dtype.name == str(dtype).removeprefix("torch.")
    assert found.tobytes() == first.view(torch.uint8).numpy().tobytes()


class Gated(torch.nn.Module):
    """Which of two layers is called depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.high(x) if x.sum() > 0 else self.low(x)


def test_of_branches_that_depend_on_data_the_one_that_was_taken_is_stored(tmp_path):
    recorded(Gated(), [(torch.ones(1, 2),), (-torch.ones(1, 2),)], tmp_path / "refs")

    taken = [list(open_references(tmp_path / "refs", sample=number)) for number in (0, 1)]
    assert taken == [["x", "high", "Gated"], ["x", "low", "Gated"]]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_what_is_torchscript_is_noted_and_the_modules_around_it_are_stored(tmp_path):
    inner = torch.jit.script(torch.nn.Sequential(torch.nn.ReLU()))
    outer = torch.nn.Sequential(torch.nn.Linear(4, 4), inner)

    notes = record_module(outer, (torch.randn(2, 4),), folder=tmp_path / "refs").notes
    with pytest.raises(RecordError, match="the module is TorchScript"):
        record_module(inner, (torch.randn(2, 4),), folder=tmp_path / "none")

    assert notes == ["'1' was not recorded, because it is TorchScript"]
    assert list(open_references(tmp_path / "refs")) == ["input", "0", "Sequential"]


class Compiled(torch.nn.Module):
    """As torch.compile makes one."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = module

    def forward(self, *args, **kwargs):
        return self._orig_mod(*args, **kwargs)


def test_a_compiled_module_is_stored_as_the_one_it_was_made_of(net, tmp_path):
    stored = recorded(Compiled(net), (torch.randn(2, 4),), tmp_path / "refs")

    assert list(stored)[:3] == ["x", "first", "relu"]


@pytest.mark.parametrize(
    ("args", "names", "expected"),
    [
        ((1,), ["input.1"], ["input.1"]),
        ((1, 2), ["scale", "image"], ["image", "scale"]),
        ((1,), [], ["x"]),
    ],
)
def test_inputs_take_a_model_s_names_by_name_then_order(net, args, names, expected, tmp_path):
    given = tuple(torch.randn(2, 4) for _ in args)

    stored = recorded(net, given, tmp_path / "refs", input_names=names)

    assert [name for name in stored if stored.entries[name].is_input] == expected


@pytest.mark.filterwarnings("ignore")
def test_operators_go_by_the_names_of_the_dynamo_exporter(tmp_path):
    layers = torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)

    stored = recorded(
        torch.nn.Sequential(*layers), (torch.randn(2, 4),), tmp_path / "refs", operators=True
    )

    assert list(stored) == ["input", "linear", "relu", "linear_1"]
    assert (stored.entries["linear_1"].scope, stored.entries["relu"].scope) == ("2", "1")


class Fails(torch.nn.Module):
    def forward(self, x):
        if x.sum() > -1e9:
            raise ValueError("no such luck")
        return x


@pytest.mark.parametrize(
    ("module", "args", "options", "message"),
    [
        (Fails(), (torch.randn(1),), {}, "Fails.forward raised ValueError: no such luck"),
        (Fails(), (), {}, "missing a required argument: 'x'"),
        (Fails(), [], {}, "no sample"),
        (torch.relu, (torch.randn(1),), {}, "is not a torch.nn.Module"),
        (torch.nn.Linear(1, 1, device="meta"), (torch.randn(1),), {}, "meta device"),
        (torch.nn.Linear(1, 1), (torch.ones(1, device="meta"),), {}, "moving the arguments to cpu"),
        (Net(), (torch.randn(2, 4),), {"scopes": ["block.9"]}, "no submodule 'block.9'"),
        (Net(), (torch.randn(2, 4),), {"input_names": ["a", "b"]}, "the model has 2 inputs"),
        (Fails(), (torch.randn(1),), {"operators": True}, "torch.export cannot take the module"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_recorded_is_told_and_leaves_nothing(
    module, args, options, message, tmp_path
):
    with pytest.raises(RecordError) as caught:
        record_module(module, args, folder=tmp_path / "refs", **options)

    assert message in caught.value.message
    assert not (tmp_path / "refs").exists()


@pytest.mark.parametrize("room", [0, 100, 10_000])
def test_a_disk_that_is_full_is_told_and_leaves_nothing(net, room, tmp_path):
    wide = torch.randn(1000 if room else 2, 4)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(RecordError, match=r"cannot write to '.*refs': File too large"):
            record_module(net, (wide,), folder=tmp_path / "refs")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert not (tmp_path / "refs").exists()


def test_nothing_is_to_be_seen_of_a_recording_before_it_is_complete(net, tmp_path):
    seen = []
    net.register_forward_hook(lambda *_: seen.extend(tmp_path.iterdir()))

    record_module(net, (torch.randn(2, 4),), folder=tmp_path / "refs")

    assert seen == []
    assert {path.name for path in (tmp_path / "refs").iterdir()} == {"values.bin", "index.json"}


class Branches(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_what_torch_export_dumps_is_not_shown(tmp_path, capfd):
    with pytest.raises(RecordError, match="data-dependent"):
        record_module(Branches(), (torch.ones(1),), folder=tmp_path / "refs", operators=True)

    assert capfd.readouterr() == ("", "")


FACTORIES = """
import torch
def good(): torch.manual_seed(0); return torch.nn.Linear(2, 2), (torch.zeros(1, 2),)
def alone(): torch.manual_seed(0); return torch.nn.Linear(2, 2)
def raises(): return helper()
def helper(): raise ValueError("no weights")
def needs(a): return a
def nothing(): return None
def numbers(): return 1, 2.0
class Two(torch.nn.Module):
    def forward(self, x, scale): return x
def two(): return Two()
def exits(): raise SystemExit(3)
"""


@pytest.fixture
def factories(tmp_path):
    path = tmp_path / "factories.py"
    path.write_text(FACTORIES)
    yield str(path)
    sys.modules.pop("factories", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "factory 'raises' raised ValueError: no weights"),
        ("needs", "factory 'needs' needs arguments: missing a required argument: 'a'"),
        ("nothing", "factory 'nothing' returned None, not a module"),
        ("numbers", "factory 'numbers' returned (an int, a float), not a module"),
        ("exits", "factory 'exits' raised SystemExit: 3"),
        ("god", "'factories.py' has no function 'god'"),
    ],
)
def test_a_factory_that_is_none_is_told(factories, name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = record_command(f"factories.py:{name}", tmp_path / "refs")

    assert done.exit_code == 2
    assert f"error: {message}" in done.stderr
    assert not (tmp_path / "refs").exists()


def test_the_lines_of_the_user_s_own_code_are_shown(factories, tmp_path):
    shown = record_command(f"{factories}:raises", tmp_path / "refs").stderr

    assert "in helper" in shown
    assert "torch_recorder" not in shown


def record_command(factory: str, folder: Path) -> Result:
    return CliRunner().invoke(app, ["record", factory, "-o", str(folder)])


def test_feeds_take_the_place_of_the_factory_s_arguments(factories, tmp_path):
    save_tensors(tmp_path / "feeds.npz", {"image": np.ones((3, 2), np.float32)})

    record_factory(f"{factories}:alone", tmp_path / "refs", str(tmp_path / "feeds.npz"))

    assert open_references(tmp_path / "refs").read("Linear").shape == (3, 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_feeds_named_like_parameters_go_to_these(factories, dtype, tmp_path):
    scale, x = np.zeros((1, 2), dtype), np.ones((1, 2), dtype)
    save_tensors(tmp_path / "feeds.safetensors", {"scale": scale, "x": x})

    record_factory(f"{factories}:two", tmp_path / "refs", str(tmp_path / "feeds.safetensors"))

    stored = open_references(tmp_path / "refs")
    assert (stored.read("x").dtype.name, stored.read("x").tolist()) == (dtype, x.tolist())
    assert stored.read("scale").tolist() == scale.tolist()


def test_feeds_of_a_dtype_that_torch_has_not_are_told(factories, tmp_path):
    narrow = np.ones((1, 2), "int4")

    with FolderWriter(tmp_path / "feeds") as writer:
        writer.add("x", narrow, {})
    with pytest.raises(UsageError, match="feed 'x' has dtype int4, which torch does not support"):
        record_factory(f"{factories}:alone", tmp_path / "refs", str(tmp_path / "feeds"))


def test_the_inputs_go_by_the_names_of_a_model(factories, tmp_path):
    model = FIXTURES / "whole_model.onnx"

    record_factory(f"{factories}:good", tmp_path / "refs", model=model)

    assert "input.1" in open_references(tmp_path / "refs")


def test_the_file_works_alone_where_only_torch_is(factories, tmp_path):
    shutil.copy(torch_recorder.__file__, tmp_path / "torch_recorder.py")
    blocked = "import sys; sys.modules.update(onnx=None, numpy=None, onnxsurgeon_lite=None)\n"
    code = f"{blocked}import torch_recorder; sys.exit(torch_recorder.main(['{factories}:good', '-o', 'refs']))"

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert list(open_references(tmp_path / "refs")) == ["input", "Linear"]


class Layer:
    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values


class Cache:
    def __init__(self, *layers: Layer) -> None:
        self.layers = [*layers]


class WithCache(torch.nn.Module):
    def forward(self, x, mask, past=None):
        made = x * mask
        return {"out": made, "cache": Cache(Layer(made + 1, made + 2)), "more": {"inner": [past]}}


def test_a_factory_may_return_keyword_arguments_and_caches_are_recorded_as_their_tensors(tmp_path):
    given = {
        "x": torch.ones(2),
        "mask": torch.zeros(2),
        "past": Cache(Layer(torch.ones(3), torch.ones(4))),
    }

    for made in (lambda: (WithCache(), given), (WithCache(), given)):
        osl.record(made, tmp_path / "refs")

        names = [*open_references(tmp_path / "refs")]
        assert "past[layers][0][values]" in names
        assert "WithCache[cache][layers][0][keys]" in names
        assert "WithCache[more][inner][0][layers][0][keys]" in names


def test_a_cache_goes_by_the_layers_of_a_model_however_it_orders_them(tmp_path):
    parts = ("past.0.key", "past.1.key", "past.0.value", "past.1.value")
    inputs = ", ".join(f"float[n] {name}" for name in ("x", "mask", *(f'"{p}"' for p in parts)))
    model = osl.build(f"g ({inputs}) => (float[n] y) {{ y = Mul(x, mask) }}")
    cache = Cache(*(Layer(torch.full((2,), n), torch.full((2,), n + 0.5)) for n in (0.0, 1.0)))
    given = {"x": torch.ones(2), "mask": torch.ones(2), "past": cache}

    record_factory((WithCache(), given), tmp_path / "refs", model=model)

    stored = open_references(tmp_path / "refs")
    assert [stored.read(name)[0] for name in parts] == [0, 1, 0.5, 1.5]


def test_a_module_in_memory_is_recorded_with_its_arguments(tmp_path):
    osl.record(
        WithCache(), tmp_path / "refs", args=(torch.ones(2),), kwargs={"mask": torch.ones(2)}
    )

    stored = open_references(tmp_path / "refs")
    assert stored.read("WithCache[out]").tolist() == [1, 1]
    with pytest.raises(UsageError, match="args is not for an ONNX model"):
        osl.record(FIXTURES / "whole_model.onnx", tmp_path / "other", args=(1,))


@pytest.mark.filterwarnings("ignore")
def test_a_recording_without_a_place_is_gone_when_it_is(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    given = torch.ones(2, 4)
    torch.onnx.export(module, (given,), tmp_path / "model.onnx", dynamo=True)

    recording = osl.record(module, args=(given,))

    assert osl.bisect(tmp_path / "model.onnx", recording).verdict == "agrees"
    folder = recording.place
    assert folder.is_dir()
    del recording
    assert not folder.exists()


def test_a_factory_whose_weights_differ_from_call_to_call_is_refused(tmp_path):
    def seeded():
        torch.manual_seed(0)
        return unseeded()

    def unseeded():
        return torch.nn.Linear(4, 4), torch.randn(2, 4)

    osl.record(seeded, tmp_path / "refs")
    with pytest.raises(
        ReferenceSetError, match="other weights from call to call: 'weight' differs"
    ):
        osl.record(unseeded, tmp_path / "other")


def test_a_module_is_stored_as_onnx_under_the_names_of_its_inputs(net, tmp_path):
    x = torch.randn(2, 4)
    stored = recorded(net, (x,), tmp_path / "refs", program=True, input_names=["data"])

    made = osl.run(stored.program, {"data": x.numpy()})

    np.testing.assert_allclose(made[next(iter(made))], stored.read("Net[y]"), rtol=1e-5)
    assert [*onnx.load(stored.program).graph.input][0].name == "data"


def test_a_module_with_arguments_by_name_is_stored_as_onnx(net, tmp_path):
    x, scale = torch.randn(2, 4), torch.randn(2, 4)
    stored = recorded(net, (x,), tmp_path / "refs", kwargs={"scale": scale}, program=True)

    made = osl.run(stored.program, {"x": x.numpy(), "scale": scale.numpy()})

    np.testing.assert_allclose(made[next(iter(made))], stored.read("Net[y]"), rtol=1e-5)


class Refused(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.eigvals(x)


def test_a_module_that_cannot_be_traced_or_is_large_is_stored_without_its_onnx(
    net, tmp_path, monkeypatch
):
    refused = recorded(Refused(), (torch.eye(3),), tmp_path / "refused", program=True)
    monkeypatch.setattr(torch_recorder, "_MOST_WEIGHTS", 10)
    large = recorded(net, (torch.randn(2, 4),), tmp_path / "large", program=True)

    for stored, folder in ((refused, "refused"), (large, "large")):
        assert stored.program is None
        assert sorted(file.name for file in (tmp_path / folder).iterdir()) == [
            "index.json",
            "values.bin",
        ]


def test_a_recording_over_another_one_does_not_keep_its_onnx(net, tmp_path):
    recorded(net, (torch.randn(2, 4),), tmp_path / "refs", program=True)

    stored = recorded(net, (torch.randn(2, 4),), tmp_path / "refs")

    assert stored.program is None
    assert not (tmp_path / "refs" / "program.onnx").exists()


def test_a_model_of_the_user_s_in_the_folder_stays(net, tmp_path):
    (tmp_path / "program.onnx").write_bytes(b"somebody's")

    recorded(net, (torch.randn(2, 4),), tmp_path, program=True)

    assert (tmp_path / "program.onnx").read_bytes() == b"somebody's"


def test_the_command_stores_the_module_as_onnx_unless_it_is_told_not_to(tmp_path):
    factory = f"{FIXTURES / 'whole_model.py'}:factory"

    for options, there in (([], True), (["--no-program"], False)):
        folder = tmp_path / f"refs{len(options)}"
        assert torch_recorder.main([factory, "-o", str(folder), *options]) == 0
        assert (folder / "program.onnx").exists() is there
