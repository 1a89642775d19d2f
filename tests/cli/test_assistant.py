"""`onnxdbg mcp`: the commands as tools, by the protocol's own client over stdio."""

import shutil
import sys

import anyio
import onnx
import pytest
import typer
from typer.testing import CliRunner

from kit import FIXTURES
from onnxsurgeon_lite.cli.app import app
from onnxsurgeon_lite.cli.assistant import Tools
from onnxsurgeon_lite.errors import UsageError

COMMANDS = typer.main.get_command(app)
PROGRAM = "from onnxsurgeon_lite.cli import main; main()"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder with models, in which the server is started."""
    for name in ("whole_model.onnx", "faulty_attribute.onnx"):
        shutil.copy(FIXTURES / name, tmp_path / name)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(here, words, *calls):
    """Start a server, call tools; return its tools by name, and each result's (text, is it an error)."""
    from mcp import ClientSession, StdioServerParameters, stdio_client  # late: it takes a second

    async def talk():
        server = StdioServerParameters(
            command=sys.executable, args=["-c", PROGRAM, "mcp", *words], cwd=str(here)
        )
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = await session.list_tools()
            results = [await session.call_tool(name, given) for name, given in calls]
        tools = {tool.name: tool for tool in listed.tools}
        return tools, [(result.content[0].text, result.is_error) for result in results]

    return anyio.run(talk)


def test_an_assistant_finds_the_wrong_node_and_nothing_is_written(here):
    tools, (inspected, found, unknown) = asked(
        here,
        [],
        ("inspect", {"model": "whole_model.onnx", "node": "Add_7"}),
        ("bisect", {"model": "faulty_attribute.onnx", "against": "whole_model.onnx"}),
        ("inspect", {"model": "no.onnx"}),
    )

    assert tools["bisect"].annotations.read_only_hint
    assert tools["bisect"].input_schema["required"] == []
    assert tools["bisect"].input_schema["properties"]["rtol"]["type"] == "array"
    assert tools["inspect"].input_schema["required"] == ["model"]
    assert "edit_rename" not in tools
    assert "28" in inspected[0]
    assert "Conv 'Conv_6' (@6)" in found[0]
    assert found[0].endswith("exit code 1")
    assert not found[1]
    assert unknown[1]
    assert "cannot read 'no.onnx'" in unknown[0]
    assert sorted(p.name for p in here.iterdir()) == [
        "faulty_attribute.onnx",
        "out",
        "whole_model.onnx",
    ]


def test_with_a_folder_it_edits_there_and_nowhere_else(here):
    _, (renamed, outside, in_place) = asked(
        here,
        ["--write", "out"],
        ("edit_rename", {"model": "../whole_model.onnx", "names": ["31=y"], "output": "new.onnx"}),
        (
            "edit_rename",
            {"model": "../whole_model.onnx", "names": ["31=y"], "output": "../new.onnx"},
        ),
        ("edit_rename", {"model": "../whole_model.onnx", "names": ["31=y"], "in_place": True}),
    )

    assert not renamed[1], renamed[0]
    assert onnx.load(here / "out/new.onnx").graph.output[0].name == "y"
    assert outside[1]
    assert "is not inside of" in outside[0]
    assert in_place[1]
    assert "takes no 'in_place'" in in_place[0]
    assert not (here / "new.onnx").exists()


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("run", {"model": "m.onnx", "runtime": "command:./evil"}),
        ("run", {"model": "m.onnx", "ops": "evil.py"}),
        ("run", {"model": "m.onnx", "feeds": "evil.py:feeds"}),
        ("run", {"model": "https://host/m.onnx"}),
        ("run", {"model": "optimized=basic:s3://bucket/m.onnx"}),
        ("run", {"model": "./https://host/m.onnx"}),
        ("run", {"model": ["m.onnx", "--runtime=command:./evil"], "fetch": True}),
        ("run", {"model": "m.onnx", "fetch": True}),
        ("run", {"model": "m.onnx", "seed": {"a": 1}}),
        ("run", {"model": "m.onnx", "save": "values.npz"}),
        ("print", {"model": "m.onnx", "weights": "w.safetensors"}),
        ("bisect", {"model": "m.onnx", "a": "opt=all,runtime=command:./evil"}),
        ("bisect", {"model": "m.onnx", "a": "python=./evil", "b": "opt=none"}),
        ("bisect", {"model": "m.onnx", "a": "provider=qnn,backend_path=./evil.so"}),
        ("bisect", {"model": "m.onnx", "versions": "1.20.1..1.22.0"}),
        ("compare", {"actual": "m.onnx", "reference": "r", "metric": "evil.py:score"}),
        ("edit_script", {"model": "m.onnx", "file": "evil.py"}),
        ("extract", {"model": "m.onnx", "outputs": ["y"]}),
    ],
)
def test_without_a_folder_nothing_runs_code_writes_or_leaves_the_machine(tool, given):
    with pytest.raises(UsageError):
        Tools(COMMANDS).words(tool, given)


def test_code_is_refused_where_a_folder_is_written_too(tmp_path):
    tools = Tools(COMMANDS, tmp_path)

    for tool, given in [
        ("record", {"model": "evil.py:factory", "output": "refs"}),
        ("record", {"model": "m.onnx", "output": "refs", "python": "./evil"}),
        ("reduce", {"model": "m.onnx", "fails": "evil.py:fails"}),
        ("reduce", {"model": "m.onnx", "command": "evil"}),
        ("edit_apply", {"model": "m.onnx", "recipe": "r.toml", "allow_scripts": True}),
        ("edit_script", {"model": "m.onnx", "file": "evil.py"}),
    ]:
        with pytest.raises(UsageError):
            tools.words(tool, given)


def test_values_that_begin_as_options_do_are_values():
    words = Tools(COMMANDS).words("inspect", {"model": "--version", "node": "-n", "ops": True})

    assert words[0] == "inspect"
    assert {"--node=-n", "--ops"} == set(words[1:3])
    assert words[3:] == ["--", "--version"]
    assert Tools(COMMANDS).words("print", {"model": "optimized:/m.onnx"})[-1] == "optimized:/m.onnx"


def test_settings_of_the_runtime_are_taken():
    given = {"model": "m.onnx", "a": "opt=none,threads=1", "b": "else=reference"}

    assert Tools(COMMANDS).words("bisect", given)[1:3] == [
        "--a=opt=none,threads=1",
        "--b=else=reference",
    ]


@pytest.mark.parametrize("word", ["a\0b", "\ud800", "x" * 200_000], ids=["NUL", "half", "long"])
def test_words_that_no_process_takes_are_answered(word, tmp_path):
    for tools in (Tools(COMMANDS), Tools(COMMANDS, tmp_path)):
        code, _ = tools.call(
            "print", {"model": word, **({"weights": word} if tools.folder else {})}
        )

        assert code == 2


def test_python_beside_the_models_is_not_imported(here):
    (here / "onnx.py").write_text("raise SystemExit('it ran')")

    code, text = Tools(COMMANDS, here).call("inspect", {"model": "whole_model.onnx"})

    assert code == 0, text


def test_nothing_is_overwritten(here):
    tools = Tools(COMMANDS, here / "out")
    given = {"model": "../whole_model.onnx", "names": ["31=y"]}

    first, second = tools.call("edit_rename", given), tools.call("edit_rename", given)

    assert (first[0], second[0]) == (0, 2)
    assert "is there already" in second[1]
    with pytest.raises(UsageError, match="takes no 'force'"):
        tools.words("edit_rename", given | {"force": True})


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/link").symlink_to(tmp_path)
    (tmp_path / "out/loop").symlink_to("loop")
    tools, given = (
        Tools(COMMANDS, (tmp_path / "out").resolve()),
        {"model": "m.onnx", "outputs": ["y"]},
    )

    with pytest.raises(UsageError, match="not inside"):
        tools.words("extract", given | {"output": "link/new.onnx"})
    assert tools.call("extract", given | {"output": "loop"})[0] == 2


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    result = CliRunner().invoke(app, ["mcp", "--write", str(tmp_path / "no")])

    assert result.exit_code == 2
    assert "there is no folder" in result.output
