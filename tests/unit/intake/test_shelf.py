import attrs
import pytest

from kai.api.core import Namespace
from kai.api.listing import Listing
from kai.api.meta import ObjectMeta
from kai.errors import InputError
from kai.intake.shelf import Shelf, in_order


@attrs.frozen(eq=False)
class Cell:
    source: Namespace
    order: tuple[str, str]


def named(name, uid="u"):
    return Namespace(metadata=ObjectMeta(name=name, uid=uid))


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def read():
    """Read one object, and remember that it was read."""

    def reading(source):
        reading.seen.append(source.metadata.name)
        return Cell(source, ("", source.metadata.name))

    reading.seen = []
    return reading


def rows(shelf):
    return [cell.source.metadata.name for cell in shelf.cells]


def test_cells_are_in_row_order_whatever_the_order_of_objects(shelf, read):
    assert shelf.put((named("b"), named("c"), named("a")), read)
    assert rows(shelf) == ["a", "b", "c"]


def test_the_same_objects_are_no_change(shelf, read):
    sources = (named("a"), named("b"))
    shelf.put(sources, read)
    cells = shelf.cells
    assert not shelf.put((*sources,), read)
    assert shelf.cells is cells


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_object_that_replaces_another_of_its_name_takes_its_row(shelf, read, at):
    sources = [named(name) for name in "cab"]
    shelf.put(tuple(sources), read)
    before = shelf.cells.copy()
    sources[at] = fresh = named(sources[at].metadata.name, uid="new")
    read.seen.clear()
    assert shelf.put(tuple(sources), read)
    assert read.seen == [fresh.metadata.name]
    assert rows(shelf) == ["a", "b", "c"]
    assert [one is other for one, other in zip(before, shelf.cells, strict=True)].count(False) == 1


def test_objects_come_go_and_move_without_being_read_again(shelf, read):
    one, two, three, four = (named(name) for name in "abcd")
    shelf.put((one, two, three), read)
    read.seen.clear()
    assert shelf.put((three, four, one), read)
    assert rows(shelf) == ["a", "c", "d"]
    assert read.seen == ["d"]
    assert not shelf.put((one, three, four), read)
    assert rows(shelf) == ["a", "c", "d"]
    assert read.seen == ["d"]
    assert shelf.put((), read)
    assert rows(shelf) == []


def test_an_object_in_the_place_of_one_of_another_name_is_read_once(shelf, read):
    shelf.put((named("a"), named("c")), read)
    read.seen.clear()
    assert shelf.put((named("d"), named("b")), read)
    assert sorted(read.seen) == ["b", "d"]
    assert rows(shelf) == ["b", "d"]


def test_two_objects_of_one_name_are_refused_and_nothing_changes(shelf, read):
    sources = (named("a"), named("b"))
    shelf.put(sources, read)
    with pytest.raises(InputError, match=r"namespace b: metadata\.name: found 'uid u and uid v'"):
        shelf.put((*sources, named("b", uid="v")), read)
    assert not shelf.put(sources, read)


def test_objects_are_put_in_order_and_doubles_refused():
    assert [each.metadata.name for each in in_order([named("b"), named("a")])] == ["a", "b"]
    with pytest.raises(InputError, match="expected one object of this kind and name"):
        in_order([named("b"), named("a"), named("b")])


def test_a_listing_says_what_came_and_went_to_who_knows_the_one_before(shelf, read, monkeypatch):
    one, two, three = (named(name) for name in "abc")
    first = Listing.after(None, (one, two), (), (one, two))
    second = Listing.after(first.mark, (one, three), (two,), (three,))
    third = Listing.after(second.mark, (three,), (one,), ())
    shelf.put(first, read)
    with monkeypatch.context() as patch:
        patch.delattr("kai.intake.shelf._difference")  # nobody compares all objects
        assert shelf.put(second, read)
    assert rows(shelf) == ["a", "c"]
    fourth = Listing.after(third.mark, (three, two), (), (two,))
    assert shelf.put(fourth, read)  # the third was not seen: all are compared
    assert rows(shelf) == ["b", "c"]
    assert not shelf.put(Listing.after(fourth.mark, (two, three), (), ()), read)
    assert shelf.put((one,), read)
    assert rows(shelf) == ["a"]


def test_a_cell_that_was_made_ahead_is_the_one_that_is_put(shelf, read):
    ahead, late = named("a"), named("b")
    shelf.read_ahead(ahead, read)
    assert not shelf.cells
    shelf.put((late, ahead), read)
    assert rows(shelf) == ["a", "b"]
    assert read.seen == ["a", "b"]


def test_an_object_that_is_known_is_not_read_ahead(shelf, read):
    known = named("a")
    shelf.put((known,), read)
    shelf.read_ahead(known, read)
    assert read.seen == ["a"]


def test_what_was_read_ahead_and_is_not_put_the_next_time_is_forgotten(shelf, read):
    early = named("a")
    shelf.read_ahead(early, read)
    shelf.put((named("b"),), read)
    shelf.put((named("c"), early), read)
    assert read.seen == ["a", "b", "c", "a"]
