"""What the steps of a bind are told, and what they promise."""

from __future__ import annotations

from typing import Protocol

import attrs

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Plan
from kai.api.scheduling.bind_request import BindRequest


@attrs.frozen(kw_only=True)
class BindContext:
    """One bind: which pod, onto which node, by which request, with which shared GPUs."""

    pod: Pod
    node: Node
    request: BindRequest
    devices: tuple[str, ...] = ()
    """Identities of the GPUs of the request's groups, in their order; empty while undoing."""


class BindStep(Protocol):
    """Something to be made ready before a pod is bound."""

    @property
    def name(self) -> str:
        """The name under which the step is configured."""

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Make it ready; doing it twice is the same as doing it once.

        Raises: BindFailureError, InputError or RefusedError if that cannot be done.
        """

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Take back what `prepare` did; nothing where it did nothing.

        Raises: RefusedError if that cannot be done.
        """
