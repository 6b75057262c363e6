import attrs
import pytest

from kai.api.codec import converter as reading
from kai.api.codec.converter import make_converter


@attrs.frozen(weakref_slot=False)
class Inner:
    count: int = 0


@attrs.frozen(weakref_slot=False)
class Outer:
    name: str = ""
    inner: Inner | None = None


@pytest.fixture
def made(monkeypatch):
    """Return the classes of which drafts were made, in their order."""
    found = []
    make = reading.draft_of
    monkeypatch.setattr(reading, "draft_of", lambda cls, **options: found.append(cls) or make(cls, **options))
    monkeypatch.setattr(reading, "_WORTH_A_DRAFT", 3)
    return found


def test_a_draft_class_is_made_only_for_many_objects(made):
    read = make_converter().get_structure_hook(Outer)
    objects = [read({"name": "a", "inner": {"count": at}} if at % 2 else {"name": "a"}, None) for at in range(5)]
    assert objects == [Outer("a", Inner(at) if at % 2 else None) for at in range(5)]
    assert {type(each) for each in objects} == {Outer}
    assert made == [Outer]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        objects[-1].name = "b"


def test_fields_are_resolved_when_a_class_is_first_read(monkeypatch):
    asked = []
    look = reading._slots
    monkeypatch.setattr(reading, "_slots", lambda cls, converter: asked.append(cls) or look(cls, converter))
    read = make_converter().get_structure_hook(Outer)
    assert asked == []
    assert read({"name": "a"}, None) == Outer("a")
    assert asked == [Outer]
    assert read({"inner": {"count": 2}}, None) == Outer(inner=Inner(2))
    assert asked == [Outer, Inner]
