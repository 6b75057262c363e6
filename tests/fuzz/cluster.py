"""Many bad objects at once in a cluster that is decided on: what the scheduler itself reads of an API server.

A batch is a conformance case's cluster and mutated copies of its objects under names of their own. They take the way
of a watch: bytes, cache, snapshot, cycle, explanations. None of it may fail; what cannot be read is rejected in words.
"""

from __future__ import annotations

import copy
import functools
import json
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.kinds import BY_NAME
from kai.cluster.caching.assume_cache import AssumeCache
from kai.cluster.caching.raw import take
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry
from kai.deciding.engine.cycle import Profile, run_cycle
from kai.framework.decisions import Decision, Recorder
from kai.intake import Intake, IntakeSettings
from kai.roles.scheduler.publishing.explanations import explain
from tests.fuzz.mutation import mutated
from tests.fuzz.samples import cases
from tests.fuzz.target import BrokenError, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kai.facts.state.snapshot import Snapshot

BATCH: Final = 200
NOW: Final = 1_800_000_000.0
_LONGEST: Final = 8192
Raw = tuple[type[Any], bytes]


@functools.cache
def profile() -> Profile:
    """Return the default policy with the plugins that read objects of their own."""
    registry = Registry.installed()
    return make_profile(read_configuration({"with": {"numa": {}, "volumes": {}, "dra": {}}}, "fuzz"), registry)


def batch(seed: int) -> tuple[list[Raw], list[Raw]]:
    """Return the objects of a cluster and so many that are mutated, as they come from an API server."""
    draw = Random(f"cluster/{seed}")
    case = draw.choice(cases())
    sound = known(case)
    bad: list[Raw] = []
    for number in range(BATCH):
        manifest = copy.deepcopy(draw.choice(sound))
        metadata = manifest.setdefault("metadata", {})
        metadata |= {"name": f"{metadata.get('name')}-{number}", "uid": f"uid-{number}"}
        bad.append((_class(manifest), _bytes(mutated(draw, manifest))))
    return raws_of(sound), bad


def known(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a case that are of kinds which the scheduler reads."""
    return [each for each in case["objects"] if (each.get("apiVersion"), each.get("kind")) in BY_NAME]


def raws_of(manifests: Iterable[dict[str, Any]]) -> list[Raw]:
    """Return manifests as they come from an API server."""
    return [(_class(each), _bytes(each)) for each in manifests]


def store(raws: Iterable[Raw]) -> ClusterObjects:
    """Return the objects that could be read.

    Raises: BrokenError for one that was rejected without words.
    """
    caches: dict[type[Any], AssumeCache[Any]] = {}
    for cls, text in raws:
        cache = caches.setdefault(cls, AssumeCache(cls, lambda _key, _change: None))
        take(cache, msgspec.Raw(text))
    for cache in caches.values():
        for each in cache.rejected:
            if not each.message or "\n" in each.message or len(each.message) > _LONGEST:
                raise BrokenError(f"rejected by {each.message[:200]!r}, expected words on one line")
    chosen: dict[str, Any] = {FIELD_OF[cls]: cache.all() for cls, cache in caches.items() if cls in FIELD_OF}
    return ClusterObjects(**chosen)


def decide(objects: ClusterObjects) -> tuple[Snapshot, Sequence[Decision]]:
    """Return what is decided in one cycle, and explained."""
    snapshot = Intake(IntakeSettings()).take(objects, NOW)
    recorder = Recorder()
    report = run_cycle(snapshot, profile(), recorder)
    explain(snapshot, report, "default", detailed=True)
    return snapshot, recorder.decisions


def run(raws: Sequence[Raw]) -> None:
    """Take objects all the way.

    Raises: BrokenError where that fails.
    """
    try:
        decide(store(raws))
    except BrokenError:
        raise
    except Exception as error:
        raise BrokenError(f"cluster: {type(error).__name__} at {place_of(error)}: {str(error)[:200]}") from error


def culprits(sound: list[Raw], bad: list[Raw]) -> list[Raw]:
    """Return the few of a batch that are enough to break it."""
    size = (len(bad) + 1) // 2
    while size:
        at = 0
        while at < len(bad):
            rest = bad[:at] + bad[at + size :]
            try:
                run(sound + rest)
            except BrokenError:
                bad = rest
            else:
                at += size
        size //= 2
    return bad


def _class(manifest: dict[str, Any]) -> type[Any]:
    return BY_NAME[manifest["apiVersion"], manifest["kind"]].cls


def _bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
