"""Sessions for unit tests of plugins: a view of a small cluster in one call."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import attrs

from kai.engine.observe import Silent
from kai.engine.profile import Profile
from kai.engine.session import Session
from kai.framework.decisions import Recorder
from kai.framework.hooks import Extension, GroupOrder, Plugin, PluginUse, PodOrder
from kai.framework.view import SessionView
from kai.model.rows import NodeRow, PodRow
from kai.state.snapshot import Snapshot
from kai.testing.building import ObjectsByName, snapshot

Values = Mapping[str, Any]
E = TypeVar("E")


def session_view(
    nodes: Values,
    groups: Values | None = None,
    queues: Values | None = None,
    topologies: Values | None = None,
    plugins: tuple[Plugin, ...] = (),
    objects: ObjectsByName | None = None,
) -> SessionView:
    """Return what a plugin sees of a session on a small cluster, in which only ``plugins`` answer.

        view = session_view(nodes={"n1": {"gpu": 8}}, groups={"g": {"members": 2, "runs_on": {"n1": 1}}})
        score = only(NodeScore, MyPlugin().open(view)).score
        score(pod_row(view, "g-1"), view.nodes)

    A plugin that tracks columns has to be given in ``plugins``: they are laid out while the session opens. ``objects``
    are those of kinds that plugins read, as in ``kai.testing.cluster``.
    """
    return open_session(snapshot(nodes, groups, queues, topologies, objects), *plugins).view


def open_session(taken: Snapshot, *plugins: Plugin) -> Session:
    """Return a session on ``taken`` in which only ``plugins`` answer."""
    uses = tuple(PluginUse(name=_name_of(plugin), plugin=plugin) for plugin in plugins)
    return Session(taken, Profile(actions=(), plugins=uses), Recorder(), Silent())


@attrs.define
class _Opener:
    """A plugin that opens another one and keeps what it answered.

    Keys are kept from the session, which would use them at once, before a test has looked at their shape.
    """

    plugin: Plugin
    extensions: Sequence[Extension] | None = None

    def open(self, session: SessionView, /) -> Sequence[Extension]:
        """Open the plugin."""
        found: Any = self.plugin.open(session)
        if isinstance(found, Sequence) and not isinstance(found, str):
            self.extensions = found
            return [each for each in found if not isinstance(each, GroupOrder | PodOrder)]
        answer: Sequence[Extension] = found  # the engine refuses by name what is no sequence
        return answer


def _name_of(plugin: Plugin) -> str:
    return type(plugin.plugin if isinstance(plugin, _Opener) else plugin).__name__


def opened(plugin: Plugin, taken: Snapshot, *others: Plugin) -> tuple[Session, Sequence[Extension]]:
    """Return a session that ``plugin`` has opened beside ``others``, and the extensions that it returned."""
    opener = _Opener(plugin)
    session = open_session(taken, *others, opener)
    if opener.extensions is None:
        raise AssertionError(f"{type(plugin).__name__}.open was not called")
    return session, opener.extensions


def only(kind: type[E], extensions: Sequence[Extension]) -> E:
    """Return the only one of ``extensions`` that is of ``kind``.

    Raises: LookupError if there is none, or more than one.
    """
    found = [each for each in extensions if isinstance(each, kind)]
    if len(found) != 1:
        raise LookupError(f"found {len(found)} of {kind.__name__}, expected one")
    return found[0]


def pod_row(view: SessionView, name: str) -> PodRow:
    """Return the row of the pod called ``name`` (or ``namespace/name``).

    Raises: KeyError if there is none.
    """
    for row, pod in enumerate(view.snapshot.pods):
        if name in (pod.name, pod.key):
            return PodRow(row)
    raise KeyError(name)


def node_row(view: SessionView, name: str) -> NodeRow:
    """Return the row of the node called ``name``.

    Raises: KeyError if there is none.
    """
    return NodeRow(view.snapshot.node_rows[name])
