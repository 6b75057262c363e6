"""What a watch brings: small changes of a cluster, drawn by chance."""

from random import Random

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects

KINDS = ("pods", "pods", "pods", "pod_groups", "pod_groups", "nodes", "queues", "bind_requests")
ALL_KINDS = tuple(field.name for field in attrs.fields(ClusterObjects))


def changed(objects: ClusterObjects, whole: ClusterObjects, chance: Random) -> ClusterObjects:
    """Return ``objects`` with one object gone, back as it is in ``whole``, made anew, or like another of its kind."""
    field = chance.choice((*KINDS, *(name for name in ALL_KINDS if getattr(whole, name))))
    members = list(getattr(objects, field))
    what = chance.choice(("away", "back", "back", "anew", "anew", "like", "like", "moved"))
    if what == "back":
        there = {_key(each) for each in members}
        missing = [each for each in getattr(whole, field) if _key(each) not in there]
        if missing:
            members.insert(chance.randrange(len(members) + 1), chance.choice(missing))
    elif not members:
        return objects
    elif what == "away":
        members.pop(chance.randrange(len(members)))
    elif what == "moved":
        members.append(members.pop(chance.randrange(len(members))))
    elif what == "like":
        at = chance.randrange(len(members))
        members[at] = _like(members[at], chance.choice(members), chance)
    else:
        at = chance.randrange(len(members))
        members[at] = _anew(members[at], objects, chance)
    return attrs.evolve(objects, **{field: tuple(members)})


def _key(source):
    return source.metadata.namespace, source.metadata.name


def _like(source, other, chance):
    """Return an object that says in one field what another of its kind says, or that was made again by its name."""
    in_metadata = ("uid", "labels", "annotations")
    name = chance.choice((*in_metadata, *(each.name for each in attrs.fields(type(source)) if each.name != "metadata")))
    if name not in in_metadata:
        return attrs.evolve(source, **{name: getattr(other, name)})
    said = f"{source.metadata.uid}-again" if name == "uid" else getattr(other.metadata, name)
    return attrs.evolve(source, metadata=attrs.evolve(source.metadata, **{name: said}))


def _anew(source, objects, chance):
    """Return another form of an object: of pods other places, of groups other times, of the rest an equal one."""
    name = type(source).__name__
    if name == "Pod":
        node = chance.choice([*(each.metadata.name for each in objects.nodes), "", "", "gone"])
        phase = chance.choice(("Running", "Running", "Pending", "Succeeded")) if node else "Pending"
        leaving = chance.choice((None, None, None, source.metadata.creation_timestamp))
        return attrs.evolve(
            source,
            metadata=attrs.evolve(source.metadata, deletion_timestamp=leaving),
            spec=attrs.evolve(source.spec, node_name=node),
            status=attrs.evolve(source.status, phase=phase),
        )
    if name == "PodGroup":
        since = chance.choice(("2026-01-01T11:58:30Z", "", "never"))
        annotations = {**source.metadata.annotations, names.STALE_SINCE: since}
        spec = attrs.evolve(source.spec, min_member=chance.choice((1, 2, 3, None)))
        return attrs.evolve(source, metadata=attrs.evolve(source.metadata, annotations=annotations), spec=spec)
    if name == "Node":
        return attrs.evolve(source, spec=attrs.evolve(source.spec, unschedulable=chance.random() < 0.3))
    return attrs.evolve(source)
