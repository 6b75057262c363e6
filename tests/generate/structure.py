"""Draw how the pods of a group belong together: gang size, elasticity, sub-groups, topology constraints."""

from tests.generate.draft import Draft, Group, SubGroup

TOPOLOGY = "cluster"


def draw_structure(draft: Draft, group: Group) -> list[tuple[str, int]]:
    """Give ``group`` its minima and constraints, and say how many pods each of its leaves has.

    A group without sub-groups has one leaf, called by the empty string.
    """
    random = draft.random
    group.constraint = draw_constraint(draft, 0.5)
    if draft.sometimes("subgroups", 0.4):
        _grow_tree(draft, group)
        return [(leaf.name, leaf.size) for leaf in group.leaves()]
    size = random.randint(2, 6) if draft.sometimes("gangs", 0.5) else 1
    group.min_member = size
    if draft.sometimes("elastic", 0.4):
        group.min_member = random.randint(0, size)
        size += random.randint(0 if group.min_member < size else 1, 3)
    elif size == 1 and random.random() < 0.2:
        group.min_member = None
    return [("", size)]


def draw_constraint(draft: Draft, chance: float) -> dict[str, str] | None:
    """Draw a required level, a preferred one that is not wider, or both."""
    random = draft.random
    if not draft.sometimes("topology", chance):
        return None
    required = random.randrange(len(draft.levels))
    preferred = random.randrange(required, len(draft.levels))
    form = random.choice(("required", "required", "preferred", "both"))
    constraint = {"topology": TOPOLOGY}
    if form != "preferred":
        constraint["requiredTopologyLevel"] = draft.levels[required]
    if form != "required":
        constraint["preferredTopologyLevel"] = draft.levels[preferred]
    return constraint


def _grow_tree(draft: Draft, group: Group) -> None:
    """Grow a tree of two to five leaves, some of them beneath an inner sub-group."""
    random = draft.random
    group.min_member = None
    inner = [
        SubGroup(f"part-{index}", constraint=draw_constraint(draft, 0.4))
        for index in range(random.choice((0, 0, 1, 2)))
    ]
    leaves: list[SubGroup] = []
    for part in inner:
        leaves += [_leaf(draft, len(leaves) + offset, part.name) for offset in range(random.randint(1, 2))]
    top = random.randint(0 if inner else 2, 3)
    leaves += [_leaf(draft, len(leaves) + offset, "") for offset in range(top)]
    if len(inner) == 2 and random.random() < 0.3:
        inner[1].parent = inner[0].name
    for part in inner:
        children = sum(child.parent == part.name for child in (*inner, *leaves))
        if draft.sometimes("elastic", 0.4):
            part.min_sub_group = random.randint(1, children)
    group.sub_groups = [*inner, *leaves]
    children = sum(not child.parent for child in group.sub_groups)
    if draft.sometimes("elastic", 0.4):
        group.min_sub_group = random.randint(1, children)


def _leaf(draft: Draft, index: int, parent: str) -> SubGroup:
    random = draft.random
    least = random.choice((1, 1, 1, 2, 2, 3))
    size = least
    if draft.sometimes("elastic", 0.3):
        least = random.randint(0, least)
        size += random.randint(0, 1)
    return SubGroup(f"leaf-{index}", parent, least, constraint=draw_constraint(draft, 0.3), size=size)
