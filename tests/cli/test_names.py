"""Names on a command line and on a terminal: lists, display, quoting."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxsurgeon_lite.names import (
    command,
    key_text,
    key_value,
    listed,
    shown,
    shown_text,
    split,
)

WORDS = [
    "plain",
    "",
    "two words",
    "it's",
    '"quoted"',
    "a,b",
    "-lead",
    "new\nline",
    "tab\t",
    "\x1b[31mred",
    "back\\slash",
    "$HOME `id` $(id)",
    "!bang",
    "*?[x]",
    "é 中",
    "\u202eturned\u200b",
    "\x9bcsi",
    "~",
    "# no comment",
    "a\\nb",
    "'\n'",
]


@pytest.mark.parametrize(
    ("argument", "names"),
    [
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        ("a,,b,", ["a", "b"]),
        (r"a\,b", ["a,b"]),
        (r"a\,b,c", ["a,b", "c"]),
        (r"a\\,b", ["a\\", "b"]),
        (r"a\b", [r"a\b"]),
        ("a\\", ["a\\"]),
        (" a, b", [" a", " b"]),
    ],
)
def test_a_list_is_split_at_commas(argument, names):
    assert split([argument]) == names


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("a=b", ("a", "b")),
        ("a=b=c", ("a", "b=c")),
        (r"a\=b=c", ("a=b", "c")),
        (r"a\=b", ("a=b", None)),
        (r"a\\=b", ("a\\", "b")),
        (r"a\b=c\=d", (r"a\b", r"c\=d")),
        ("a", ("a", None)),
        ("a\\", ("a\\", None)),
        ("=b", ("", "b")),
        ("a=", ("a", "")),
        ("", ("", None)),
    ],
)
def test_a_pair_is_split_at_its_first_equals_sign(text, pair):
    assert key_value(text) == pair


@settings(max_examples=300)
@given(st.text(st.sampled_from("a,\\=\n")), st.text(st.sampled_from("a\\=\n")))
def test_any_key_is_read_as_it_was_written(key, value):
    assert key_value(f"{key_text(key)}={value}") == (key, value)


def test_a_list_that_is_one_name_stays_whole():
    assert split(["a,b", "a,c"], known={"a,b"}) == ["a,b", "a", "c"]
    assert split([r"a\,b"], known={r"a\,b"}) == [r"a\,b"]


@settings(max_examples=300)
@given(st.lists(st.text(st.sampled_from("a,\\ -\n"), min_size=1), max_size=4))
def test_what_is_listed_is_split_again(names):
    assert split([listed(names)]) == names


def test_every_word_of_a_command_arrives_in_a_shell():
    script = command("printf", r"%s\0", *WORDS)

    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)

    assert script.isprintable()
    assert done.stdout.decode().split("\0")[:-1] == WORDS


@settings(max_examples=200)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_shown_is_printable_and_plain_names_stay(name):
    assert shown(name).isprintable()
    assert shown(name) == name or not name.isprintable()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a\nb", r"a\nb"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202e", r"\u202e"),
        ("[red]x", "[red]x"),
        ("é", "é"),
    ],
)
def test_control_characters_are_shown_and_not_sent(name, text):
    assert shown(name) == text


def test_a_name_with_a_line_end_stays_in_its_line_of_a_text():
    text = 'g {\n  "a\nb" = Relu ("it\'s \\" \x1b[1m")\n}'

    assert shown_text(text) == 'g {\n  "a\\nb" = Relu ("it\'s \\" \\x1b[1m")\n}'
