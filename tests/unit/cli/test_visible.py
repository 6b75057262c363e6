import io
import sys

import pytest

from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.failures import visible

REQUEST = """\
cluster: {nodes: {n1: {gpu: 1}}}
queues: {root: {}, a: {parent: root}}
groups: {%s: {queue: a, each: {gpu: 1}}}
"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\rb\x00\x9b", "a\\x0db\\x00\\x9b"),
        ("abc\u202edef", "abc\\u202edef"),
        ("half \ud800", "half \\ud800"),
        ("two\nlines\tand └─ пёс 😀", "two\nlines\tand └─ пёс 😀"),
    ],
)
def test_what_moves_a_terminal_is_written_out(text, shown):
    assert visible(text) == visible(text, styled=True) == shown


def test_colours_stay_where_there_are_colours():
    assert visible("\x1b[1;31mred\x1b[0m\x1b[H", styled=True) == "\x1b[1;31mred\x1b[0m\\x1b[H"
    assert visible("\x1b[31mred") == "\\x1b[31mred"


def test_documents_say_it_in_their_own_syntax(capsys):
    Console(output="json").write('"\u202e"')
    assert capsys.readouterr().out == '"\u202e"\n'


def test_a_name_with_commands_for_terminals_commands_none(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text(REQUEST % '"j\\e[2J"')
    assert run(["simulate", str(path)]) == 0
    assert run(["lint", str(path), "--select", "j\x1b[2J"]) == 2
    said = capsys.readouterr()
    assert "j\\x1b[2J" in said.out
    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_characters_outside_the_terminals_encoding_are_escaped(encoding, tmp_path, monkeypatch):
    path = tmp_path / "x.yaml"
    path.write_text(REQUEST % "пёс", encoding="utf-8")
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert run(["simulate", str(path)]) == 0
    assert b"\\u043f" in stream.buffer.getvalue()
