"""Groups that exist already, and those among them that an earlier release named or shaped otherwise."""

from collections.abc import Mapping

from kai.errors import InputError
from kai.podgrouper.grouper import Request
from kai.podgrouper.kinds import POD_GROUP
from kai.podgrouper.lookup import Absent, Get, Reader, Why
from kai.podgrouper.resource import Resource


def group_exists(request: Request, name: str) -> bool:
    """Return whether a group of that name exists; never, where the settings switch the search off.

    Raises: InputError when it cannot be told.
    """
    return request.settings.legacy_groups and find_group(request.reader, request.pod.namespace, name) is not None


def find_group(reader: Reader, namespace: str, name: str) -> Resource | None:
    """Return the group of that name, or nothing when there is none.

    Raises: InputError when it cannot be told.
    """
    read = Get(POD_GROUP, namespace, name)
    found = reader.get(read)
    if not isinstance(found, Absent):
        return found
    if found.why is not Why.NOT_FOUND:
        raise InputError(f"{read}: {found}")
    return None


def has_subgroups(group: Resource) -> bool:
    """Return whether a group that exists has sub-groups."""
    spec = group.manifest.get("spec")
    return isinstance(spec, Mapping) and bool(spec.get("subGroups"))
