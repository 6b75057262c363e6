"""Objects that plugins read, as they were written."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True, eq=False)
class RawObject:
    """An object of a kind that plugins read. It is itself only, so that plugins can keep what they read of it."""

    name: str
    namespace: str = ""
    uid: str = ""
    """What tells it from earlier objects of its name."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[tuple[str, str], ...] = ()
    """Kind and uid of each owner."""
    deleting: bool = False
    """Whether it goes once its finalizers are done."""
    write: Callable[[], Mapping[str, Any]] = attrs.field(repr=False)
    """Makes ``content``: of an object that no plugin looks into nothing is made."""

    @property
    def key(self) -> str:
        """The name, behind the namespace and a slash where there is one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def content(self) -> Mapping[str, Any]:
        """All fields but the metadata, as JSON has them; they are not to be changed. Made anew at each look."""
        return self.write()

    @property
    def spec(self) -> Mapping[str, Any]:
        """The field ``spec`` of the content."""
        return self.content.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """The field ``status`` of the content."""
        return self.content.get("status") or {}
