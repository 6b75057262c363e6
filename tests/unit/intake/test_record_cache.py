import attrs
import numpy as np
import pytest

from kai.api.cluster_objects import Listing
from kai.api.kubernetes.meta import Namespace, ObjectMeta
from kai.basics.errors import InputError
from kai.intake.record_cache import RecordCache, in_order


@attrs.frozen(eq=False)
class Record:
    source: Namespace
    order: tuple[str, str]


def named(name, uid="u"):
    return Namespace(metadata=ObjectMeta(name=name, uid=uid))


@pytest.fixture
def cache():
    return RecordCache()


@pytest.fixture
def read():
    """Read one object, and remember that it was read."""

    def reading(source):
        reading.seen.append(source.metadata.name)
        return Record(source, ("", source.metadata.name))

    reading.seen = []
    return reading


def rows(cache):
    return [record.source.metadata.name for record in cache.records]


def test_records_are_sorted_whatever_the_order_of_objects(cache, read):
    assert cache.put((named("b"), named("c"), named("a")), read)
    assert rows(cache) == ["a", "b", "c"]


def test_the_same_objects_are_no_change(cache, read):
    sources = (named("a"), named("b"))
    cache.put(sources, read)
    records = cache.records
    assert not cache.put((*sources,), read)
    assert cache.records is records


@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_object_replacing_its_namesake_takes_the_row(cache, read, at):
    sources = [named(name) for name in "cab"]
    cache.put(tuple(sources), read)
    before = cache.records.copy()
    sources[at] = fresh = named(sources[at].metadata.name, uid="new")
    read.seen.clear()
    assert cache.put(tuple(sources), read)
    assert read.seen == [fresh.metadata.name]
    assert rows(cache) == ["a", "b", "c"]
    assert [one is other for one, other in zip(before, cache.records, strict=True)].count(False) == 1


def test_objects_come_go_and_move_without_being_read_again(cache, read):
    one, two, three, four = (named(name) for name in "abcd")
    cache.put((one, two, three), read)
    read.seen.clear()
    assert cache.put((three, four, one), read)
    assert rows(cache) == ["a", "c", "d"]
    assert read.seen == ["d"]
    assert not cache.put((one, three, four), read)
    assert rows(cache) == ["a", "c", "d"]
    assert read.seen == ["d"]
    assert cache.put((), read)
    assert rows(cache) == []


def test_an_object_replacing_another_name_is_read_once(cache, read):
    cache.put((named("a"), named("c")), read)
    read.seen.clear()
    assert cache.put((named("d"), named("b")), read)
    assert sorted(read.seen) == ["b", "d"]
    assert rows(cache) == ["b", "d"]


def test_two_objects_of_one_name_are_refused_unchanged(cache, read):
    sources = (named("a"), named("b"))
    cache.put(sources, read)
    with pytest.raises(InputError, match=r"namespace b: metadata\.name: found 'uid u and uid v'"):
        cache.put((*sources, named("b", uid="v")), read)
    assert not cache.put(sources, read)


def test_objects_are_put_in_order_and_doubles_refused():
    assert [each.metadata.name for each in in_order([named("b"), named("a")])] == ["a", "b"]
    with pytest.raises(InputError, match="expected one object of this kind and name"):
        in_order([named("b"), named("a"), named("b")])


def test_a_listing_applies_only_its_changes_to_known_records(cache, read, monkeypatch):
    one, two, three = (named(name) for name in "abc")
    first = Listing.after(None, (one, two), (), (one, two))
    second = Listing.after(first.mark, (one, three), (two,), (three,))
    third = Listing.after(second.mark, (three,), (one,), ())
    cache.put(first, read)
    with monkeypatch.context() as patch:
        patch.delattr("kai.intake.record_cache._difference")  # nobody compares all objects
        assert cache.put(second, read)
    assert rows(cache) == ["a", "c"]
    fourth = Listing.after(third.mark, (three, two), (), (two,))
    assert cache.put(fourth, read)  # the third was not seen: all are compared
    assert rows(cache) == ["b", "c"]
    assert not cache.put(Listing.after(fourth.mark, (two, three), (), ()), read)
    assert cache.put((one,), read)
    assert rows(cache) == ["a"]


def test_a_record_read_ahead_is_the_one_put(cache, read):
    ahead, late = named("a"), named("b")
    cache.read_ahead(ahead, read)
    assert not cache.records
    cache.put((late, ahead), read)
    assert rows(cache) == ["a", "b"]
    assert read.seen == ["a", "b"]


def test_an_object_that_is_known_is_not_read_ahead(cache, read):
    known = named("a")
    cache.put((known,), read)
    cache.read_ahead(known, read)
    assert read.seen == ["a"]


def test_only_the_last_version_read_ahead_is_kept(cache, read):
    versions = [named("a") for _ in range(50)]
    for version in versions:
        cache.read_ahead(version, read)
    assert [record.source for record in cache._ahead.values()] == [versions[-1]]
    cache.put((versions[-1],), read)
    assert [record.source for record in cache.records] == [versions[-1]]
    cache.read_ahead(named("a"), read)  # what was remembered of names went with what was put
    assert len(cache._ahead) == 1


def test_a_record_read_ahead_and_not_put_is_forgotten(cache, read):
    early = named("a")
    cache.read_ahead(early, read)
    cache.put((named("b"),), read)
    cache.put((named("c"), early), read)
    assert read.seen == ["a", "b", "c", "a"]


@pytest.mark.parametrize("gone", [0, 1, 150])
@pytest.mark.parametrize("names", ["between", "all over", "at the end", "at the beginning"])
def test_many_new_objects_are_sorted_and_others_carried_over(cache, read, names, gone):
    stem = {"between": "row-100-{}", "all over": "row-{}-x", "at the end": "z-{}", "at the beginning": "a-{}"}[names]
    before = [named(f"row-{number:03}") for number in range(200)]
    cache.put(tuple(before), read)
    version, columns = cache.version, np.array(rows(cache), object)
    come = [named(stem.format(f"{number:03}")) for number in range(199, -1, -1)]
    cache.put((*come, *before[gone:]), read)
    assert rows(cache) == sorted(each.metadata.name for each in (*come, *before[gone:]))
    assert cache.version.before is version.mark
    carried = cache.version.carried(columns)
    fresh = cache.version.fresh.tolist()
    assert sorted(rows(cache)[row] for row in fresh) == sorted(each.metadata.name for each in come)
    carried[fresh] = [rows(cache)[row] for row in fresh]
    assert carried.tolist() == rows(cache)


@pytest.mark.parametrize("double", ["row-100", "new-150"])
def test_a_duplicate_name_among_many_objects_is_refused(cache, read, double):
    cache.put(tuple(named(f"row-{number:03}") for number in range(200)), read)
    before = rows(cache)
    come = [named(f"new-{number:03}") for number in range(200)] + [named(double, uid="v")]
    with pytest.raises(InputError, match=f"namespace {double}: metadata\\.name: found 'uid u and uid v'"):
        cache.put((*[record.source for record in cache.records], *come), read)
    assert rows(cache) == before
