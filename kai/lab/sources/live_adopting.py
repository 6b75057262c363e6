"""Adopting the workloads of other schedulers in a running cluster, with the owners of their pods and their queues.

Nothing is written.
"""

from collections.abc import Mapping
from typing import Any

import anyio

from kai.answers.cases.case import Case
from kai.answers.cases.live_cluster import lister_of
from kai.basics.errors import UnreachableError
from kai.basics.parsing import mappings_of, part_of
from kai.cluster.clock import SystemClock
from kai.cluster.port import Clock
from kai.cluster.transport.access import Access
from kai.lab.sources.adopting import taken, with_adopted
from kai.manifests.adoption import HELD_KINDS, Adoption, is_held
from kai.manifests.proposals import QUEUE_KINDS


def with_adopted_of_cluster(case: Case, access: Access, adoption: Adoption) -> Case:
    """Return a case that was read from a cluster with the pods of other schedulers among kai's.

    Raises: UnreachableError, or InputError for an object that cannot be read.
    """
    return with_adopted(case, adoption, anyio.run(_list_beside, access, case, adoption, SystemClock()))


async def _list_beside(access: Access, case: Case, adoption: Adoption, clock: Clock) -> list[Mapping[str, Any]]:
    """Return the further objects that an adoption needs: owners of pods, and definitions of queues.

    Kinds that the user may not list are left out; such owners are known only by the references to them.
    """
    found: list[Mapping[str, Any]] = []
    async with lister_of(access, clock) as lister:

        async def listed(api_version: str, kind: str) -> list[Mapping[str, Any]]:
            try:
                # The plural is guessed. Where the guess is wrong, owners are known only by references to them.
                several = await lister.list_manifests(api_version, f"{kind.lower()}s")
            except UnreachableError as error:
                if not error.missing:
                    raise
                several = []
            return [{"apiVersion": api_version, "kind": kind, **each} for each in several]

        for version, kind in QUEUE_KINDS.get(adoption.queue_from, ()):
            if all(each["kind"] != kind for each in found):  # the same kind may be served in several API versions
                found += await listed(version, kind)
        for place in HELD_KINDS.get(adoption.queue_from, ()):
            found += [each for each in await listed(*place) if is_held(each)]
        wanted = {
            (each.api_version, each.kind, each.uid)
            for pod in taken(case, adoption)
            for each in pod.metadata.owner_references
        }
        known: set[tuple[str, str, str]] = set()
        while wanted - known:
            fresh, known = wanted - known, known | wanted
            for place in sorted({each[:2] for each in fresh}):
                uids = {uid for *kind, uid in fresh if tuple(kind) == place}
                owners = [each for each in await listed(*place) if part_of(each, "metadata", "uid") in uids]
                found += owners
                wanted |= {
                    (str(each.get("apiVersion")), str(each.get("kind")), str(each.get("uid")))
                    for owner in owners
                    for each in mappings_of(owner, "metadata", "ownerReferences")
                }
    return found
