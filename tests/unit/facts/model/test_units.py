import pytest

from kai.facts.model.units import mig_slices


@pytest.mark.parametrize(
    ("resource", "slices"),
    [
        ("nvidia.com/mig-2g.10gb", (2, 10)),
        ("nvidia.com/mig-7g.141gb", (7, 141)),
        ("nvidia.com/mig-1g.5gb+me", (0, 0)),
        ("example.com/mig-1g.5gb", (0, 0)),
        ("nvidia.com/mig-99999999999999999999g.5gb", (0, 0)),
    ],
)
def test_a_mig_profile_gives_its_slices_and_memory(resource, slices):
    assert mig_slices(resource) == slices
