"""A bind that was refused, as far as the next decisions have to know of it."""

import attrs


@attrs.frozen(kw_only=True)
class NoRoom:
    """A node that refused a pod for lack of room: the pod is not sent there while this is remembered."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    """What the binder said, on one line."""
