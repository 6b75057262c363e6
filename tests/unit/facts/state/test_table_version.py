"""What is carried from version to version is what would have been made anew."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.state.kept import carried_order, creation_order
from kai.facts.state.memory import Items, Memory, carried_items, replaced
from kai.facts.state.table_version import Carrier, TableVersion

ROWS = st.lists(st.integers(0, 12), unique=True, max_size=10).map(sorted)
"""A table: rows in order, by what is in them."""


def successor(version, before, now, changed):
    """Return the version of the rows ``now``, of which those in ``changed`` are new objects."""
    source = [before.index(row) if row in before and row not in changed else -1 for row in now]
    fresh = [at for at, old in enumerate(source) if old < 0]
    kept = None if before == now else np.array(source, np.int64)
    return TableVersion(before=version.mark, source=kept, fresh=np.array(fresh, np.int64))


def told_successor(version, before, now, changed):
    """Return the same version, made of the places that changed."""
    inserted = Counter(sum(row < new for row in before) for new in now if new not in before)
    replaced = {at for at, row in enumerate(before) if row in now and row in changed}
    removed = {at for at, row in enumerate(before) if row not in now}
    return TableVersion.of_changes(version.mark, len(before), inserted, replaced, removed)


@pytest.mark.parametrize("make", [successor, told_successor])
@given(rounds=st.lists(st.tuples(ROWS, st.sets(st.integers(0, 12))), min_size=1, max_size=4))
def test_carried_columns_lists_and_orders_match_their_rows(make, rounds):
    carrier, memory, version, before, things = Carrier(), Memory(), TableVersion(), [], {}
    carrier.columns("values", version, 0, lambda rows: (np.zeros(len(rows), np.int64),))
    listed, in_place, items, given_out = [], [], (), []
    for number, (now, changed) in enumerate(rounds):
        version = make(version, before, now, changed)
        for row in now:
            if row not in before or row in changed:
                things[row] = 100 * row + number
        values = [things[row] for row in now]
        asked_for = []

        def read(rows, values=values, asked_for=asked_for):
            asked_for.extend(rows)
            return (np.array([values[row] for row in rows], np.int64),)

        (column,) = carrier.columns("values", version, len(now), read)
        assert column.tolist() == values
        assert asked_for == version.fresh.tolist()
        assert carrier.columns("values", version, len(now), read)[0] is column
        listed = version.carried_list(listed, [values[row] for row in version.fresh.tolist()])
        assert listed == values
        version.carry(in_place, [values[row] for row in version.fresh.tolist()])
        assert in_place == values
        items = carried_items(items, version, [values[row] for row in version.fresh.tolist()])
        assert (len(items), list(items)) == (len(values), values)
        assert [items[row] for row in range(len(items))] == values
        assert items == tuple(values)
        given_out.append((items, tuple(values)))
        created = np.array([value % 3 for value in values], np.float64)

        def uid(row, values=values):
            return str(values[row])

        order = carried_order(memory, "order", version, created, uid)
        assert order.tolist() == creation_order(created, uid).tolist()
        before = now
    assert all(tuple(then) == values for then, values in given_out)  # whoever holds items of the past keeps them


@given(st.integers(0, 1 << 32), st.sampled_from([0, 3, 100]), st.sampled_from([0, 3, 100]))
def test_carried_orders_match_rows_however_many_change(seed, leaving, arriving):
    luck = Random(seed)  # Hypothesis would write down each of some thousand numbers
    memory, before = Memory(), sorted(luck.sample(range(2000), 1000))
    first = TableVersion()
    carried_order(memory, "order", first, np.array(before, np.float64) % 7, lambda row: str(before[row]))
    stay = sorted(luck.sample(before, 1000 - leaving))
    now = sorted({*stay, *luck.sample(range(2000), arriving)})
    changed = set(luck.sample(now, min(2, arriving)))
    version = successor(first, before, now, changed)
    listed = list(before)
    version.carry(listed, [now[row] for row in version.fresh.tolist()])
    assert listed == now
    column = version.carried(np.array(before, np.int64))
    column[version.fresh] = [now[row] for row in version.fresh.tolist()]
    assert column.tolist() == now
    rows = {each: row for row, each in enumerate(now) if each not in changed}
    assert version.rows_now(len(before)).tolist() == [rows.get(each, -1) for each in before]
    created = np.array(now, np.float64) % 7
    order = carried_order(memory, "order", version, created, lambda row: str(now[row]))
    assert order.tolist() == creation_order(created, lambda row: str(now[row])).tolist()


def test_items_are_unchanged_when_others_are_derived():
    first = carried_items(tuple("abcd"), TableVersion(), ())
    one, other = replaced(first, {1: "x"}), replaced(first, {1: "y", 3: "z"})
    assert (tuple(first), tuple(one), tuple(other)) == (tuple("abcd"), tuple("axcd"), tuple("aycz"))
    assert (one[1:3], one[-1], hash(one)) == (("x", "c"), "d", hash(tuple("axcd")))
    assert one != other
    assert one != ["a"]


def test_replaced_items_are_released_in_time():
    """A list that only grows is made anew before an eighth of it is of the past."""
    items, size = tuple(range(4096)), 4096
    for number in range(2000):
        items = replaced(items, {number % size: -number})
        kept = len(items._store) if isinstance(items, Items) else len(items)
        assert kept <= size + size // 8 + 64
    assert list(items)[:3] == [0, -1, -2]


@given(st.lists(st.booleans(), max_size=8), ROWS, ROWS, st.sets(st.integers(0, 12)))
def test_a_version_of_some_rows_carries_what_they_had(chosen, before, now, changed):
    wanted = {row for row, chooses in enumerate(chosen) if chooses}
    whole = TableVersion()
    later = successor(whole, before, now, changed)
    # What was chosen may have changed with the object, but not for one that is still the same.
    among = later.among(
        np.array([row in wanted for row in before], np.bool_), np.array([row in wanted for row in now], np.bool_)
    )
    values_before = [f"old {row}" for row in before if row in wanted]
    values = [f"old {row}" if row in before and row not in changed else f"new {row}" for row in now if row in wanted]
    assert among.carried_list(values_before, [values[row] for row in among.fresh.tolist()]) == values
    assert among.mark is later.mark


def test_other_inputs_or_a_missed_version_are_read_anew():
    carrier, first, one, other = Carrier(), TableVersion(), object(), object()
    seen = []

    def read(rows):
        seen.append(list(rows))
        return (np.zeros(len(rows), np.int64),)

    carrier.columns("name", first, 2, read, (one,))
    carrier.columns("name", first, 2, read, (one,))
    carrier.columns("name", first, 2, read, (other,))
    missed = TableVersion(before=first.mark, fresh=np.array([1], np.int64))
    carrier.columns("name", TableVersion(before=missed.mark, fresh=np.array([0], np.int64)), 2, read, (other,))
    assert seen == [[0, 1], [0, 1], [0, 1]]


@pytest.mark.parametrize("count", [10, 1000])
def test_given_changes_yield_the_same_version_as_comparing(count):
    before, changed = list(range(0, 2 * count, 2)), set(range(0, 2 * count, 6))
    now = sorted({*before, *range(1, 2 * count, 10)} - set(range(0, 2 * count, 14)))
    found, wanted = (make(TableVersion(), before, now, changed) for make in (told_successor, successor))
    assert found.source.tolist() == wanted.source.tolist()
    assert found.fresh.tolist() == wanted.fresh.tolist()
    assert (found.known_runs is None) == (count == 1000)
    column = np.arange(100, 100 + count)
    stayed = found.source >= 0
    assert found.carried(column)[stayed].tolist() == column[found.source[stayed]].tolist()


OF_ROWS = st.dictionaries(st.integers(0, 12), st.sampled_from([0.0, -0.0, np.nan, 1.0]))
"""What rows say, by what is in them; all others say nothing, that is NaN."""


@given(
    st.lists(
        st.tuples(ROWS | st.none(), st.sets(st.integers(0, 12)), OF_ROWS, st.integers(0, 2)), min_size=1, max_size=8
    )
)
def test_a_past_column_stays_unchanged_under_later_versions(rounds):
    """Some columns of the past are held, and of others the memory may be taken."""
    carrier, version, before, said, past = Carrier(), TableVersion(), [], {}, []
    for rows, changed, says, held in rounds:
        now = before if rows is None else rows
        version = (successor if now == before else told_successor)(version, before, now, changed)
        said |= {row: says.get(row, np.nan) for row in now if row not in before or row in changed}
        values = np.array([said[row] for row in now], np.float64)

        def read(rows, values=values):
            return values[list(rows)], np.isnan(values[list(rows)])

        found = carrier.columns("values", version, len(now), read)
        assert [column.tobytes() for column in found] == [values.tobytes(), np.isnan(values).tobytes()]
        past.append((found, values))
        del past[: -held or None], found
        before = now
    for (numbers, flags), values in past:
        assert numbers.tobytes() == values.tobytes()
        assert flags.tobytes() == np.isnan(values).tobytes()
        for column in (numbers, flags):
            with pytest.raises(ValueError, match="read-only"):
                column[:] = 1


def carried(rows, *columns):
    """Bring columns through versions, each given as the places that changed and what rows say then."""
    carrier, version = Carrier(), TableVersion()
    out = [carrier.columns("column", version, rows, lambda _: (np.array(columns[0]),))[0]]
    for inserted, changed, column in columns[1:]:
        version = TableVersion.of_changes(version.mark, rows, inserted, changed, set())
        if not inserted:
            version = TableVersion(before=version.before, fresh=version.fresh)
        rows += sum(inserted.values())
        values = np.array(column)
        out.append(carrier.columns("column", version, rows, lambda chosen, all_=values: (all_[list(chosen)],))[0])
    return out


def test_versions_share_a_column_when_values_stay_equal():
    first, same, other = carried(3, [1, 2, 3], ({}, {1}, [1, 2, 3]), ({}, {1}, [1, 7, 3]))
    assert same is first
    assert other.tolist() == [1, 7, 3]
    assert first.tolist() == [1, 2, 3]


def test_a_column_reuses_the_memory_of_an_unreferenced_one():
    def column(version, *values):
        def read(rows):
            return (np.array(values, np.int64)[list(rows)],)

        return carrier.columns("column", version, len(values), read)[0]

    carrier, versions = Carrier(), [TableVersion()]
    for row in (1, 0, 2, 2):
        versions.append(TableVersion(before=versions[-1].mark, fresh=np.array([row], np.int64)))
    first = column(versions[0], 1, 2, 3)
    second = column(versions[1], 1, 9, 3)
    place = second.ctypes.data
    third = column(versions[2], 7, 9, 3)
    assert not np.shares_memory(first, third)  # there is a view of the first
    del second
    fourth = column(versions[3], 7, 9, 8)
    assert fourth.ctypes.data == place
    assert (first.tolist(), third.tolist(), fourth.tolist()) == ([1, 2, 3], [7, 9, 3], [7, 9, 8])
    view = third[:1]
    del third
    fifth = column(versions[4], 7, 9, 5)
    assert not np.shares_memory(fifth, view)
    assert (view.tolist(), fifth.tolist()) == ([7], [7, 9, 5])


def test_versions_share_a_column_while_all_rows_are_equal():
    more = ({1: 1}, set(), [5] * 4), ({0: 2}, {3}, [5] * 6), ({0: 1}, set(), [6, *[5] * 6])
    first, second, third, other = carried(3, [5] * 3, *more)
    assert (first.tolist(), second.tolist(), third.tolist()) == ([5] * 3, [5] * 4, [5] * 6)
    assert np.shares_memory(second, third)
    assert other.tolist() == [6, *[5] * 6]
    assert not np.shares_memory(other, third)


def test_zeros_of_either_sign_are_not_the_same():
    first, second = carried(2, [0.0, 0.0], ({0: 1}, set(), [-0.0, 0.0, 0.0]))
    assert np.signbit(second).tolist() == [True, False, False]
    assert not np.signbit(first).any()
