import pytest

from kai.basics.errors import InputError
from kai.roles.podgrouper.resource import Fields, Kind, Resource, annotated_integer
from tests.unit.roles.podgrouper.workloads import thing

FIELDS = Fields({"a": {"n": 1, "t": "x", "f": True, "l": ["y"], "none": None, "m": [{"n": 2}]}}, 'Work "w"')


def test_fields_are_read_by_path_and_type():
    assert FIELDS.integer("a", "n") == 1
    assert FIELDS.text("a", "t") == "x"
    assert FIELDS.flag("a", "f") is True
    assert FIELDS.texts("a", "l") == ("y",)
    assert FIELDS.child("a").integer("n") == 1
    assert [each.integer("n") for each in FIELDS.children("a", "m")] == [2]


@pytest.mark.parametrize("path", [("b",), ("a", "b"), ("a", "none", "b")])
def test_a_path_that_leads_nowhere_is_absence(path):
    assert FIELDS.integer(*path) is None
    assert FIELDS.child(*path) is None
    assert FIELDS.children(*path) is None


@pytest.mark.parametrize(
    ("read", "path", "message"),
    [
        ("integer", ("a", "t"), "Work \"w\": a.t: found 'x', expected an integer"),
        ("integer", ("a", "f"), 'Work "w": a.f: found true, expected an integer'),
        ("integer", ("a", "none"), 'Work "w": a.none: found nothing, expected an integer'),
        ("text", ("a", "n"), 'Work "w": a.n: found 1, expected a string'),
        ("flag", ("a", "n"), 'Work "w": a.n: found 1, expected true or false'),
        ("child", ("a", "n"), 'Work "w": a.n: found 1, expected a map'),
        ("children", ("a",), 'Work "w": a: found .*, expected a list'),
        ("children", ("a", "l"), r"Work \"w\": a.l\[0\]: found 'y', expected a map"),
        ("texts", ("a", "m"), 'Work "w": a.m: found .*, expected strings only'),
        ("integer", ("a", "n", "x"), 'Work "w": a.n: found 1, expected a map'),
    ],
)
def test_another_type_is_refused_with_its_place(read, path, message):
    with pytest.raises(InputError, match=message):
        getattr(FIELDS, read)(*path)


def test_the_place_of_a_part_counts_from_the_object():
    (part,) = FIELDS.children("a", "m")
    with pytest.raises(InputError, match=r'a\.m\[0\]\["x/y"\]: found nothing, expected an integer'):
        Fields({"x/y": None}, part.subject, part.path).integer("x/y")


@pytest.mark.parametrize(("text", "kind"), [("v1", Kind("", "v1", "K")), ("g/v1", Kind("g", "v1", "K"))])
def test_a_kind_is_written_as_it_is_read(text, kind):
    assert Kind.of(text, "K") == kind
    assert kind.api_version == text


def test_an_object_without_kind_needs_one_as_argument():
    manifest = {"metadata": {"name": "x"}}
    with pytest.raises(InputError, match="expected apiVersion and kind"):
        Resource.of(manifest)
    assert Resource.of(manifest, Kind("", "v1", "Pod")).kind.kind == "Pod"


@pytest.mark.parametrize("text", ["x", "0", "4294967296", " 1", "1_0", "1.0", "0x1", "\u0661", "1" * 30])
def test_an_annotated_integer_has_bounds(text):
    owner = Resource.of(thing("v1", "Work", annotations={"size": text}))
    with pytest.raises(InputError, match=r'metadata.annotations\["size"\]'):
        annotated_integer(owner, "size", at_least=1)
