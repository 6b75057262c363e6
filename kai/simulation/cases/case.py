"""A case: everything that one simulation needs, read from whatever it was written in."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import EMPTY
from kai.configuration.reading import Configuration
from kai.errors import InputError
from kai.intake import IntakeSettings
from kai.model.past import Past
from kai.simulation.cases.origin import Origin

if TYPE_CHECKING:
    from kai.manifests import Finding, Unused
    from kai.manifests.proposals import Proposal
    from kai.simulation.cases.refused import RefusedWorkload


@attrs.frozen(kw_only=True)
class Expected:
    """What a scenario in the short form expects."""

    groups: Mapping[str, Any]
    idle: Mapping[str, Any] = attrs.field(factory=dict)
    shares: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Case:
    """A cluster at a moment, a configuration, and how often to decide.

    Time stands still: every cycle happens at ``now``, in seconds since the epoch.
    """

    name: str
    """The path as it was given."""
    title: str
    objects: ClusterObjects
    now: float
    configuration: Configuration
    settings: IntakeSettings
    cycles: int = 1
    stable_cycles: int = 0
    """Cycles after those; the answer must hold after each of them."""
    past: Past = attrs.field(factory=Past)
    """What there was before the first cycle."""
    keep_terminating: frozenset[str] = frozenset()
    """Names of pod groups whose pods stay terminating for ever once they are evicted."""
    expected: Mapping[str, Any] | None = None
    sentences: Expected | None = None
    """What a scenario in the short form expects."""
    short_groups: frozenset[str] = frozenset()
    """Names of the groups that are written in the short form."""
    document: Mapping[str, Any] | None = None
    """The configuration as a snapshot carries it; None for the default one."""
    recorded: Mapping[str, Any] | None = None
    """The decisions that a snapshot says were made of it, as a plan."""
    notes: tuple[str, ...] = ()
    """What was passed over or changed while reading."""
    unused: "tuple[Unused, ...]" = ()
    """Objects that had no part in it, counted by kind and reason."""
    findings: "tuple[Finding, ...]" = ()
    """What is wrong with the input: with what has a part in it, and with what was refused."""
    refused: "tuple[RefusedWorkload, ...]" = ()
    """Workloads that a cluster would not take as they are; they have no part in it."""
    about: "Mapping[str, tuple[Finding, ...]]" = EMPTY
    """The same by the jobs that they are about, as ``namespace/name``."""
    workloads: int = 0
    """Workloads among plain manifests that this scheduler is asked to place."""
    owners: Mapping[str, tuple[tuple[str, str, str], ...]] = EMPTY
    """Kind, name and UID of what owns the workloads among plain manifests, by their UIDs."""
    templates: tuple[Mapping[str, Any], ...] = ()
    """Objects that only describe the pods of workloads, such as the runtimes of TrainJobs, as they are written."""
    adopted: tuple[str, ...] = ()
    """What was taken over from other schedulers, and what was not."""
    proposals: "tuple[Proposal, ...]" = ()
    """The queues that were made for it."""
    queue_sources: tuple[Mapping[str, Any], ...] = ()
    """Objects that say what other schedulers' queues are, as they are written."""
    origin: Origin = attrs.field(factory=Origin)


@attrs.frozen(kw_only=True)
class FairShareCase:
    """Sibling queues and an amount to divide, without a cluster."""

    name: str
    title: str
    document: Mapping[str, Any]
    expected: Mapping[str, Any] | None = None
    origin: Origin = attrs.field(factory=Origin)


def cluster_of(case: Case | FairShareCase) -> Case:
    """Return a case that is a cluster.

    Raises: InputError for a division of fair shares.
    """
    if not isinstance(case, Case):
        raise InputError(f"{case.name}: found a division of fair shares, expected a cluster")
    return case
