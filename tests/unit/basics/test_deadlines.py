"""Deadlines are compared with a plain dictionary that is sorted each time anything is asked."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from kai.basics.deadlines import Deadlines

KEYS = st.integers(0, 5)
TIMES = st.integers(0, 9).map(float)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("hasten"), KEYS, TIMES),
        st.tuples(st.just("pop"), KEYS),
        st.tuples(st.just("take"), TIMES, st.integers(0, 3)),
        st.tuples(st.just("forget"), TIMES),
        st.tuples(st.just("clear")),
    ),
    max_size=50,
)


class Plain:
    """The twin: for each key its time, and the number of the step that set it."""

    def __init__(self):
        self.entries, self.steps = {}, 0

    def set(self, key, time):
        self.steps += 1
        self.entries[key] = (time, self.steps)

    def hasten(self, key, time):
        if key not in self.entries or time < self.entries[key][0]:
            self.set(key, time)

    def pop(self, key):
        return self.entries.pop(key, (None,))[0]

    def take(self, now, most=None):
        due = [key for key in sorted(self.entries, key=self.entries.get) if self.entries[key][0] <= now][:most]
        for key in due:
            del self.entries[key]
        return due

    def forget(self, now):
        self.take(now)

    def clear(self):
        self.entries.clear()


def perform(step, deadlines):
    name, *given = step
    match name:
        case "set":
            deadlines[given[0]] = given[1]
        case "pop":
            return deadlines.pop(given[0], None)
        case "take":
            return list(islice(deadlines.take(given[0]), given[1]))
        case _:
            getattr(deadlines, name)(*given)
    return None


@given(STEPS)
def test_deadlines_are_those_of_a_dictionary_that_is_sorted(steps):
    deadlines, plain = Deadlines(), Plain()
    for step in steps:
        assert perform(step, deadlines) == getattr(plain, step[0])(*step[1:])
        assert dict(deadlines) == {key: time for key, (time, _) in plain.entries.items()}
        assert len(deadlines) == len(plain.entries)
        assert deadlines.first() == min(dict(deadlines).values(), default=None)


def test_a_deadline_set_while_taking_comes_in_turn():
    deadlines, found = Deadlines(), []
    deadlines["a"] = 1.0
    for key in deadlines.take(3.0):
        found.append(key)
        if key == "a":
            deadlines["b"], deadlines["c"] = 2.0, 4.0
    assert found == ["a", "b"]
    assert dict(deadlines) == {"c": 4.0}


def test_a_key_set_repeatedly_takes_no_more_room():
    deadlines = Deadlines()
    for time in range(10_000):
        deadlines["a"] = float(time)
        deadlines["b"] = 1e9
    assert len(deadlines._heap) < 100
    assert list(deadlines.take(1e8)) == ["a"]


def test_keys_need_no_order():
    deadlines = Deadlines()
    deadlines[None] = deadlines["a"] = deadlines[1] = 2.0
    assert list(deadlines.take(2.0)) == [None, "a", 1]
