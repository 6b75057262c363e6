"""Why a bind found no room, in words that a scheduler recognises when it reads them in a bind request.

A bind request says why it failed in one line of text and has no other field for it. What is written and what is looked
for stand here side by side.
"""

import re
from typing import Final

_NO_ROOM: Final = re.compile(
    r"has \S+ of \S+ left, the pod needs|has no GPU left to be shared|GPU group \S+ on .+ would hold \S+ of a GPU"
)


def short_of(place: str, resource: str, *, free: str, wanted: str) -> str:
    """Return that ``place`` has less of a resource than a pod asks for."""
    return f"{place} has {free} of {resource} left, the pod needs {wanted}"


def no_gpu_to_share(place: str) -> str:
    """Return that ``place`` has no GPU that could be reserved for sharing."""
    return f"{place} has no GPU left to be shared"


def device_overfull(group: str, place: str, total: float) -> str:
    """Return that the GPU of a group has no room for another portion."""
    return f"GPU group {group} on {place} would hold {total:.2f} of a GPU"


def is_lack_of_room(reason: str) -> bool:
    """Return whether a bind failed because its node, or a GPU there, is too full, rather than for the pod itself."""
    return _NO_ROOM.search(reason) is not None
