"""What old versions and other systems lack: a test that meets it is skipped there, with its name."""

import os
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "onnxsurgeon_lite"

LACKS = (
    # package, the first version that has it, the error without it or the name of the test, what it is
    ("onnx", "1.18", r"ParseError at", "names of nodes and names in quotes in ONNX text"),
    (
        "onnx",
        "1.18",
        r"test_a_line_end_in_a_name_stays_in_its_line",
        "names in quotes in ONNX text",
    ),
    ("onnx", "1.18", r"comes_back\[.*-Resize sizes, computed\]", "a part of the shape of a Resize"),
    ("onnx", "1.19", r"is malformed: float\(\) argument .*'complex'", "complex numbers in fields"),
    ("onnx", "1.19", r"Unable to convert type dtype\(\w+\) into Tensor", "arrays of ml_dtypes"),
    (
        "onnx",
        "1.19",
        r"past_key' dimension 3 should be same as head_size",
        "types of contrib operators",
    ),
    ("onnx", "1.19", r"assert \[.*'head_dim'", "types of contrib operators"),
    ("onnx", "1.19", r"test_inferred_types_are_those_of_a_run", "types of contrib operators"),
    ("onnx", "1.19", r"the dtype of 'normed_1' is not known", "types of contrib operators"),
    ("onnx", "1.19", r"test_each_rule_of_types_agrees_with", "types of contrib operators"),
    ("onnx", "1.19", r"test_a_cache_that_(slides_is|a_cast_reads)", "types of contrib operators"),
    ("onnx", "1.19", r"test_the_command_shows_the_first_token", "types of contrib operators"),
    ("onnx", "1.20", r"Unable to convert type dtype\(u?int2\)", "a dtype"),
    ("onnx", "1.21", r"tensor '' is malformed: cannot reshape", "the shape of a former attribute"),
    (
        "onnx",
        "1.21",
        r"test_an_input_without_a_shape_gets",
        "a check of the rank that a Conv needs",
    ),
    ("onnx", "1.21", r"bool always = \.\.\.", "a bool as text"),
    ("onnx", "1.20", r"assertInVersionRange|No Adapter From Version", "a way between two opsets"),
    ("onnx", "1.20", r"converter cannot convert the graph from opset 24", "a later opset"),
    ("onnx", "1.20", r"no value defined for name '(U?INT2|FLOAT4E2M1|FLOAT8E8M0)", "a dtype"),
    ("onnx", "1.20", r"(no operator|No schema registered for) 'Swish'", "the operator Swish"),
    (
        "numpy",
        "2.1",
        r"test_an_array_of_a_huge_dtype\S*\[<U1073741824",
        "an error for such a dtype",
    ),
    (
        "onnxruntime",
        "1.24",
        r"test_weights_(get_as_many_bits|go_into_two_bits)",
        "2 and 8 bits in its quantizer of blocks",
    ),
    ("onnxruntime", "1.23", r"Opset 23 is under development", "a later opset"),
    (
        "onnxruntime",
        "1.24",
        r"test_nodes_in_branches_are_placed",
        "where it places nodes of branches",
    ),
    (
        "onnxruntime",
        "1.24",
        r"test_fused_nodes_run_where_the_fused_one",
        "where it places fused nodes",
    ),
    (
        "onnxruntime",
        "1.24",
        r"attention_of_groups\[.*local_window_size",
        "today's window of attention",
    ),
    ("onnxruntime", "1.27", r"Unsupported model IR version", "an IR version"),
    (
        "onnxruntime",
        "1.32",
        r"not_fused\[\S*LayerNorm.*float tiny",
        "norms with a constant epsilon alone",
    ),
    ("onnxruntime", "1.27", r"not find an implementation for Cast|cannot run Cast", "a kernel"),
    ("onnxruntime", "1.27", r"matmul_nbits\.cc", "weights of 2 bits"),
    ("onnxruntime", "1.27", r"output size 1 not in range \[min=3", "attention without a cache"),
    ("onnxruntime", "1.27", r"test_rows_of_an_embedding_in_blocks", "weights of 2 bits"),
    ("onnxruntime", "1.27", r"two overloads|test_overloads", "functions with overloads"),
)


SYSTEM = os.environ.get("SIMULATED_SYSTEM", "")
LACKING = (
    # systems, the name of the test, what they have not
    (
        "macos windows",
        r"test_memory_is_read_where_the_system_gives_it",
        "memory of other processes",
    ),
    (
        "windows",
        r"test_ctrl_c_ends_a_run_names_the_node_and_keeps",
        "a signal that ends a run at a node",
    ),
    ("windows", r"test_what_a_program_started_ends_with_it\[exit 3\]", "groups of processes"),
    ("macos windows", r"test_a_program_ends_with_a_killed_command", "an end with the parent"),
)


def lacking(test: str, message: str) -> str | None:
    """Return what a version or a system lacks that a failed test needs, None if it is a fault."""
    for systems, says, name in LACKING:
        if SYSTEM in systems.split() and re.search(says, test):
            return f"{SYSTEM} has not: {name}"
    for package, first, says, name in LACKS:
        if older(package, first) and re.search(says, f"{test} {message}"):
            own = "ParseError" in says and _is_of_library(message)
            return None if own else f"{package} {version(package)} has not: {name}"
    return None


def needs(package: str, first: str, what: str) -> pytest.MarkDecorator:
    """Skip a test, or a file, where an old version would end the process instead of the test."""
    return pytest.mark.skipif(
        older(package, first), reason=f"{package} before {first} has not: {what}"
    )


def older(package: str, first: str) -> bool:
    """Return whether a package is installed in a version before another."""
    try:
        return _numbers(version(package)) < _numbers(first)
    except PackageNotFoundError:
        return False


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)][:3]


def _is_of_library(message: str) -> bool:
    """Return whether the text that cannot be parsed is one of the package's own."""
    found = re.search(r"Error context:\s*(.*?)(\\n|\n|Expected|Identifier|$)", message)
    return bool(found) and len(found[1].strip()) > 8 and found[1].strip() in _texts()


@cache
def _texts() -> str:
    files = (*LIBRARY.rglob("*.onnxtxt"), *LIBRARY.rglob("*.py"))
    return "\n".join(file.read_text() for file in files)


STURDY_ATTENTION = needs("onnxruntime", "1.27", "a GroupQueryAttention that survives a search")
"""In 1.24 it ends its process, or lets it hang, on some of the numbers that a search feeds it; in 1.27 it does not."""
