"""Sessions on small clusters, and searches in them, as short calls."""

import attrs

from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import UNLIMITED, Session
from kai.facts.model.placement import Past
from kai.framework.decisions import Recorder
from kai.testing import default_profile_with, snapshot


def opened(groups, nodes, queues=None, topologies=None, budget=UNLIMITED, plugins=(), protected=(), **parameters):
    """Return a session with the built-in plugins and ``plugins`` behind them.

    Disruption budgets protected the pods ``protected`` a moment ago.
    """
    profile = default_profile_with(*plugins)
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, **parameters))
    taken = snapshot(nodes, groups, queues, topologies)
    uids = tuple(sorted(pod.uid for pod in taken.pods if pod.name in protected))
    return Session(attrs.evolve(taken, past=Past(protected=uids)), profile, Recorder(), Silent(), budget)


def row(session, name):
    """Return the row of a group."""
    return next(at for at, group in enumerate(session.snapshot.groups) if group.name == name)


def pods_of(session, name):
    """Return the rows of the pods of a group."""
    return session.portion(row(session, name)).pods().tolist()


def told(session):
    """Return what was decided, one list of words for each statement."""
    pods = session.snapshot.pods
    return [[f"{type(each).__name__} {pods[each.pod].name}" for each in made] for made in session._sink.statements]
