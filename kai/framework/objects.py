"""What a plugin reads of objects: its own custom resources, and labels and annotations of pods and groups.

A plugin names kinds of objects in ``reads`` of its class, since the scheduler watches them before any session opens:

    CAPS = Objects(api_version="power.example.com/v1", kind="RackPowerCap", plural="rackpowercaps", read=watts_of)

    @attrs.frozen
    class RackPower:
        reads: ClassVar = (CAPS,)

        def open(self, session: SessionView) -> Sequence[Extension]:
            caps = session.values(CAPS)  # by name: what watts_of made of each object

``read`` is a pure function of one object, asked once for each version of it. The scheduler must be allowed to get, list
and watch the kind; ``kai plugins`` says so. In simulations the objects stand among the others.

Of pods and groups a plugin reads numbers, which arrive as columns:

    WATTS = Column(read=lambda labels, annotations: float(annotations["power.example.com/watts"]), otherwise=300)
    watts = session.pod_column(WATTS)  # float64[P]; for groups ``group_column``
"""

from collections.abc import Callable, Mapping
from math import nan

import attrs

from kai.model.foreign import RawObject


@attrs.frozen(kw_only=True)
class Objects:
    """A kind of objects, and what a plugin makes of each."""

    api_version: str
    kind: str
    plural: str
    read: Callable[[RawObject], object]
    """A value that is never changed. ValueError says what is wrong with the object; its value is ``Unreadable``.

    KeyError and TypeError, of a field that is missing or of another type, do the same: an object is not the plugin's.
    """
    namespaced: bool = False

    @property
    def right(self) -> str:
        """The resource that the scheduler must be allowed to get, list and watch: plural and group."""
        group, slash, _ = self.api_version.partition("/")
        return f"{self.plural}.{group}" if slash else self.plural

    def value_of(self, raw: RawObject) -> object:
        """Return the value of one object."""
        try:
            return self.read(raw)
        except ValueError as error:
            return Unreadable(message=f"{self.kind.lower()} {raw.key}: {error}")
        except (KeyError, TypeError) as error:
            return Unreadable(message=f"{self.kind.lower()} {raw.key}: {type(error).__name__}: {error}")


@attrs.frozen(kw_only=True)
class Column:
    """A number that a plugin reads of each pod, or of each group."""

    read: Callable[[Mapping[str, str], Mapping[str, str]], float]
    """Makes the number of labels and annotations, once for each version of an object."""
    otherwise: float = nan
    """Of objects for which ``read`` raises KeyError or ValueError: they have no such annotation, or no number in it."""

    def of(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> float:
        """Return the number of one object."""
        try:
            return self.read(labels, annotations)
        except (KeyError, ValueError):
            return self.otherwise


@attrs.frozen
class Unreadable:
    """The value of an object that cannot be read, and why. The plugin decides what follows from it."""

    message: str


__all__ = ["Column", "Objects", "RawObject", "Unreadable"]
