"""What plugins see cannot be written, and a plugin that tries is named."""

import attrs
import numpy as np
import pytest

from kai.basics.errors import PluginError
from kai.facts.compiled.struct import Struct
from kai.facts.kernels import groups
from kai.framework.view import SessionView
from kai.testing import session_view, snapshot
from kai.testing.views import open_session

RACK = "rack"
CLUSTER = ({"n1": {"gpu": 8, "labels": {RACK: "a"}}}, {"g": {"members": 2, "each": {"gpu": 1}, "runs_on": ["n1"]}})


def arrays_of(struct, path):
    """Yield name and array of each field, those of structs in it included."""
    for name in type(struct)._fields:
        value = getattr(struct, name)
        if isinstance(value, Struct):
            yield from arrays_of(value, f"{path}.{name}")
        elif isinstance(value, np.ndarray):
            yield f"{path}.{name}", value


def shown(view):
    """Yield name and array of all that a view shows."""
    for name in ("facts", "columns", "vectors"):
        yield from arrays_of(getattr(view, name), name)
    yield from ((name, value) for name, value in vars(view.snapshot).items() if isinstance(value, np.ndarray))
    for name in ("nodes", "requested", "last_start", "constrained_groups"):
        yield name, getattr(view, name)
    yield "label_codes", view.label_codes(RACK)
    yield "pods_labelled", view.pods_labelled(RACK)
    yield "pods_of", view.pods_of(0)
    yield "snapshot.requests", view.snapshot.requests
    yield "snapshot.first_subgroup", view.snapshot.first_subgroup


def test_no_array_of_a_view_can_be_written():
    found = dict(shown(session_view(*CLUSTER)))
    assert len(found) > 60
    assert [name for name, array in found.items() if array.flags.writeable] == []


@attrs.frozen
class Careless:
    write: object

    def open(self, session: SessionView):
        self.write(session)
        return ()


@pytest.mark.parametrize(
    "write",
    [
        lambda session: session.columns.idle.__setitem__((0, 0), 7),
        lambda session: session.facts.nodes.allocatable.__setitem__((0, 0), 7),
        lambda session: session.snapshot.pod_node.__setitem__(0, 7),
        lambda session: session.requested.fill(0.0),
        lambda session: session.label_codes(RACK).fill(1),
        lambda session: session.nodes.sort(),
    ],
)
def test_a_plugin_that_writes_what_it_sees_is_named(write):
    with pytest.raises(PluginError, match=r'plugin "Careless".*open: raised ValueError: .*read-only'):
        open_session(snapshot(*CLUSTER), Careless(write))


def test_a_plugin_cannot_write_to_its_tracked_column():
    class Counting:
        def open(self, session):
            self.column = session.track(np.zeros(3, np.int64))
            return ()

    plugin = Counting()
    session = open_session(snapshot(*CLUSTER), plugin)
    with pytest.raises(ValueError, match="read-only"):
        plugin.column.values[0] = 1
    assert session.columns.arena.flags.writeable


def test_kernels_accept_a_view_that_follows_changes():
    session = open_session(snapshot(*CLUSTER))
    view = session.view
    assert groups.nodes_of_group(view.facts, view.columns, 0).tolist() == [0]
    released = view.columns.releasing.sum()
    session.ledger.evict(0)
    assert view.columns.releasing.sum() > released
    assert groups.nodes_of_group(view.facts, view.columns, 0).tolist() == []
