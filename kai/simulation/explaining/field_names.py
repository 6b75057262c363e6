"""What the fields of a group are called in the form in which it is written.

The short form has ``groups.train.minimum`` where objects have ``minMember``. A suggestion is to be typed into a file,
so it names the field that the file has.
"""

from typing import Final

import attrs

from kai.api import names


@attrs.frozen(kw_only=True)
class GroupFields:
    """The fields that suggestions change, in the words of one form."""

    minimum: str
    fraction: str
    gpu_memory: str
    preemptible: str
    """The field and the value that let pods be taken back."""
    delay: str


OBJECTS: Final = GroupFields(
    minimum="minMember",
    fraction=names.GPU_FRACTION,
    gpu_memory=names.GPU_MEMORY,
    preemptible=f"{names.PREEMPTIBILITY}: {names.PREEMPTIBLE}",
    delay="preemptionDelay",
)
SHORT: Final = GroupFields(
    minimum="minimum",
    fraction="fraction",
    gpu_memory="gpu_memory",
    preemptible="preemptible: true",
    delay="preemption_delay",
)


__all__ = ["OBJECTS", "SHORT", "GroupFields"]
