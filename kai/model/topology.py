"""Topologies: ordered levels of node labels, from the widest to the narrowest."""

import attrs


@attrs.frozen(kw_only=True)
class Topology:
    """One topology object. ``levels`` are node label keys, ``aliases`` maps other names of a level to its label."""

    name: str
    levels: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    def level(self, name: str) -> str:
        """Return the node label of the level called ``name``, maybe an alias; unknown names come back unchanged."""
        return dict(self.aliases).get(name, name)
