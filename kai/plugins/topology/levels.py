"""What topology reads: objects that list node labels, from the widest level to the narrowest."""

from collections.abc import Mapping

import attrs

from kai.framework import Objects, RawObject, TopologyConstraint


@attrs.frozen(kw_only=True)
class Levels:
    """One topology object. ``labels`` are node label keys; ``aliases`` leads from other names of levels to them."""

    name: str
    labels: tuple[str, ...]
    aliases: Mapping[str, str] = attrs.field(factory=dict)

    def resolved(self, constraint: TopologyConstraint) -> TopologyConstraint:
        """Return ``constraint`` with node labels for levels; names that are no alias stay as they are."""
        required, preferred = constraint.required, constraint.preferred
        return attrs.evolve(
            constraint,
            required=self.aliases.get(required, required),
            preferred=self.aliases.get(preferred, preferred),
        )


def _read(raw: RawObject) -> Levels:
    levels = raw.spec.get("levels", ())
    return Levels(
        name=raw.name,
        labels=tuple(level["nodeLabel"] for level in levels),
        aliases={level["alias"]: level["nodeLabel"] for level in levels if level.get("alias")},
    )


TOPOLOGIES = Objects(api_version="kai.scheduler/v1alpha1", kind="Topology", plural="topologies", read=_read)
