import bz2
import gzip
import json
import lzma
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.manifest_text import TextError, load_documents, load_values, place_documents
from kai.basics.errors import InputError

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


def test_yaml_documents_are_read_in_order_without_empty_ones() -> None:
    text = (
        "---\n"
        + yaml.dump(NODE).replace("name: n\n", "name: 'n'\n")
        + "---\n# only a comment\n---\n"
        + yaml.dump(POD)
        + "---\n"
    )
    assert load_documents(text, "x.yaml") == (NODE, POD)


@pytest.mark.parametrize("text", [json.dumps(NODE), json.dumps(NODE).encode(), "\n " + json.dumps(NODE)])
def test_json_is_read(text: str | bytes) -> None:
    assert load_documents(text, "x.json") == (NODE,)


def test_json_objects_between_separators_are_read_as_documents() -> None:
    assert load_documents(f"{json.dumps(NODE)}\n---\n{json.dumps(POD)}", "x") == (NODE, POD)


def test_lists_are_taken_apart() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [POD]}
    assert load_documents(json.dumps({"apiVersion": "v1", "kind": "List", "items": [NODE, inner]}), "x") == (NODE, POD)
    assert load_documents(json.dumps([NODE, [POD]]), "x") == (NODE, POD)
    assert load_documents(json.dumps({"apiVersion": "v1", "kind": "List", "items": None}), "x") == ()


def test_items_of_a_typed_list_get_their_kind() -> None:
    items = [{"metadata": {"name": "n"}}]
    assert load_documents(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": items}), "x") == (NODE,)


def test_a_time_without_quotes_stays_text() -> None:
    assert load_values("at: 2026-01-01T12:00:00Z\non: 2026-01-01", "x") == (
        {"at": "2026-01-01T12:00:00Z", True: "2026-01-01"},
    )


def test_a_number_may_have_an_exponent_without_a_dot() -> None:
    assert load_values("[1e3, -2E+2, 0x10, 1.5]", "x.yaml") == ([1000.0, -200.0, 16, 1.5],)


def test_empty_text_has_no_documents() -> None:
    assert load_documents("", "x") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1, 2", "x.yaml: line 2, column 1: not YAML: did not find expected ',' or ']'"),
        ("a: b: c", "x.yaml: line 1, column 5: not YAML: mapping values are not allowed in this"),
        ("a: &x 1\nb: *y", "x.yaml: line 2, column 4: not YAML: found undefined alias"),
        ("hello", 'x.yaml: found "hello", expected an object with apiVersion and kind'),
        ("[1]", "x.yaml: found 1, expected an object with apiVersion and kind"),
        ("a: !!python/object:os.system 1", "x.yaml: line 1, column 4: not YAML: could not determine a constructor"),
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_refused_with_its_line(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_documents(text, "x.yaml")
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"\x80abc", "\x00", "a: \x07", "\ud800"])
def test_text_that_cannot_be_read_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match=r"^x\.yaml: "):
        load_documents(text, "x.yaml")


@pytest.mark.parametrize(
    ("text", "seems"),
    [
        (gzip.compress(b"a: 1"), "what gzip made"),
        (bz2.compress(b"a: 1"), "what bzip2 made"),
        (lzma.compress(b"a: 1"), "what xz made"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document"),
        (b"%PDF-1.4\nall of it is text\n", "a PDF document"),
        (b"PK\x03\x04 and no more", "a zip file"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"a.yaml".ljust(257, b"\0") + b"ustar", "a tar archive"),
    ],
    ids=["gzip", "bzip2", "xz", "pdf", "pdf of text", "zip", "png", "tar"],
)
def test_binary_content_is_named_by_its_format(text: bytes, seems: str) -> None:
    with pytest.raises(TextError, match=rf"^x\.yaml: found {seems}, expected YAML or JSON text$"):
        load_values(text, "x.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b\n".encode("utf-16"), "found UTF-16 text, as PowerShell writes it, expected UTF-8 text"),
        (b"\x07\xf6 nothing that is known", "found binary data, byte 0xf6 at 1, expected UTF-8 text"),
        (b"a: b\nc: \xfc\n", "found byte 0xfc at 8, on line 2, expected UTF-8 text"),
        ("a: b\nc: d\x1b[31m\n", "line 2, column 5: not YAML: found character 0x1b, which YAML does not allow"),
        ("a:\n\tb: c\n", "line 2, column 1: not YAML: found a tab, expected blanks: YAML does not indent with tabs"),
        ("a:\n  - b\n \t- c\n", "line 3, column 2: not YAML: found a tab, expected blanks: YAML does not indent with"),
        ("a: @b\n", "line 1, column 4: not YAML: found character that cannot start any token"),
    ],
    ids=["utf-16", "binary", "latin", "escape", "tab", "later tab", "sign"],
)
def test_unreadable_text_is_named_with_cause_and_place(text: str | bytes, said: str) -> None:
    with pytest.raises(TextError) as caught:
        load_values(text, "x.yaml")
    assert str(caught.value).startswith(f"x.yaml: {said}")


INDENTED = "a:\n" + "".join(f"{' ' * depth}b:\n" for depth in range(500))


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[" * 101, '{"a":' * 100_000, "- " * 100_000, "? " * 5000, INDENTED],
    ids=["open lists", "just too deep", "open objects", "lists in a line", "keys in a line", "indented"],
)
def test_what_nests_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(
        InputError, match=r"^x\.yaml: line \d+, column \d+: found deeper nesting, expected at most 100 levels"
    ):
        load_documents(text, "x.yaml")


def test_deep_but_honest_text_is_read() -> None:
    text = "a: " + "[" * 60 + "]" * 60 + "\n" + "".join(f"b{at}: {{x: [1], y: {{}}}}\n" for at in range(200))
    with pytest.raises(InputError, match=r"^x: line"):
        load_values(text + "c: [", "x")
    (value,) = load_values(text, "x")
    assert len(value) == 201


def test_aliases_are_followed() -> None:
    text = "a: &limits {cpu: 1}\nb: *limits\n---\nc: &limits [x]\nd: [*limits, *limits]\n"
    assert load_values(text, "x") == ({"a": {"cpu": 1}, "b": {"cpu": 1}}, {"c": ["x"], "d": [["x"], ["x"]]})


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 20)]
    with pytest.raises(InputError, match=r"^x: found aliases that multiply to \d+ values, expected at most 10000000"):
        load_values("\n".join(lines), "x")


def test_an_alias_inside_of_itself_is_refused() -> None:
    with pytest.raises(InputError, match=r"^x: line 2, column 6: found an alias inside of what it stands for"):
        load_values("a: &a\n  b: *a", "x")


@given(
    st.one_of(st.text(max_size=40), st.binary(max_size=40), st.text(alphabet="{}[]:,-&*!|>'\"\n #a1.%@`?", max_size=30))
)
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    found: tuple[object, ...] = ()
    refusal = "x.yaml: "
    try:
        found = load_documents(text, "x.yaml")
    except InputError as error:
        refusal = str(error)
    assert all(isinstance(manifest, dict) for manifest in found)
    assert refusal.startswith("x.yaml: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3))
def test_json_is_read_as_it_was_written(value: dict[str, Any]) -> None:
    assert load_values(json.dumps(value), "x") == (value,)


def test_a_duplicate_key_is_refused_with_its_place() -> None:
    with pytest.raises(TextError) as caught:
        load_values("kind: Node\nmetadata: {name: a}\nmetadata: {name: b}\n", "x.yaml")
    assert str(caught.value) == 'x.yaml: line 3, column 1: found key "metadata" twice in one object, expected it once'
    assert (caught.value.line, caught.value.column) == (3, 1)


def test_a_key_that_is_merged_in_may_be_overridden() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n"
    assert load_values(text, "x") == ({"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 2}},)


def test_a_manifest_knows_its_document_and_its_path() -> None:
    text = "kind: Node\n---\n---\nkind: List\nitems: [{kind: Pod}, {kind: List, items: [{kind: Queue}]}]\n"
    found = place_documents(load_values(text, "x"), "x")
    assert [(placed.manifest["kind"], placed.document, placed.path) for placed in found] == [
        ("Node", 0, ()),
        ("Pod", 1, ("items", 0)),
        ("Queue", 1, ("items", 1, "items", 0)),
    ]
