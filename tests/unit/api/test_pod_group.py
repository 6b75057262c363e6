import pytest

from kai.api.scheduling.pod_group import PodGroupSpec, SubGroup, least_members


def leaf(name, least, parent=None):
    return SubGroup(name=name, min_member=least, parent=parent)


LEFT, RIGHT = leaf("left", 2), leaf("right", 3)
COPIES = (SubGroup(name="copies", min_sub_group=1), leaf("a", 4, "copies"), leaf("b", 2, "copies"))


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        (PodGroupSpec(), 1),
        (PodGroupSpec(min_member=4), 4),
        (PodGroupSpec(sub_groups=(LEFT, RIGHT)), 5),
        (PodGroupSpec(sub_groups=(RIGHT, LEFT), min_sub_group=1), 2),
        (PodGroupSpec(sub_groups=(LEFT, RIGHT), min_sub_group=0), 1),
        (PodGroupSpec(sub_groups=(*reversed(COPIES), RIGHT)), 2 + 3),
        (PodGroupSpec(sub_groups=(leaf("a", 2, "b"), leaf("b", 2, "a"))), 1),
    ],
)
def test_a_group_needs_the_fewest_pods_of_its_tree(spec, least):
    assert least_members(spec) == least
