"""Sums of quantities, exact and without bound, for services that add up what many objects say.

`kai.api.values.quantity` reads one amount into 64 bits of a declared unit, which is what columns need. The memory of a
whole cluster in bytes beside a thousandth of a GPU fits no single unit, so here amounts are Python integers in
billionths, the finest that the Kubernetes API knows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kai.api.conventions.resizing import is_sidecar, requests_of, requests_of_whole, sums_of
from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import Pod
from kai.api.values.bad_value import BadValue
from kai.api.values.quantity import amount
from kai.kubernetes_version import NEWEST, V1_37, KubernetesVersion
from kai.quantity import canonical

BILLION: Final = 10**9


@attrs.frozen
class Amount:
    """An amount of a resource.

    Units: `billionths` of the resource's own unit. `binary` says that its text is written with Ki, Mi, Gi.
    """

    billionths: int = 0
    binary: bool = False

    def __add__(self, other: Amount) -> Amount:
        """Return the sum, written as the first of the two that is not zero."""
        binary = self.binary if self.billionths else other.binary
        return Amount(self.billionths + other.billionths, binary)

    def times(self, count: int) -> Amount:
        """Return the amount, so many times."""
        return Amount(self.billionths * count, self.binary)

    @property
    def text(self) -> str:
        """Return the canonical quantity text."""
        return canonical(self.billionths, BILLION, style="binary" if self.binary else "decimal")


@functools.lru_cache(maxsize=1 << 14)
def exact(text: str) -> Amount:
    """Return the amount of a quantity, exactly as long as it fits into 64 bits at that precision.

    Raises: BadValue if the text is not a quantity or its whole units do not fit into 64 bits.
    """
    parts = BILLION
    while True:
        try:
            return Amount(amount(text, parts) * (BILLION // parts), text.endswith("i"))
        except BadValue:
            if parts == 1:
                raise
            parts //= 1000


def add_up(lists: Iterable[Mapping[str, str]]) -> dict[str, Amount]:
    """Return the sum of many lists of amounts by resource.

    Raises: BadValue if an amount is not a quantity.
    """
    total: dict[str, Amount] = {}
    for amounts in lists:
        for name, text in amounts.items():
            known = total.get(name)
            total[name] = exact(text) if known is None else known + exact(text)
    return total


def plus(left: Mapping[str, Amount], right: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the sum of two lists of amounts by resource."""
    total = dict(left)
    for name, more in right.items():
        known = total.get(name)
        total[name] = more if known is None else known + more
    return total


def texts(amounts: Mapping[str, Amount]) -> dict[str, str]:
    """Return amounts as quantity texts, in the order of the resources' names."""
    return {name: amounts[name].text for name in sorted(amounts)}


def same(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    """Return whether two lists say the same amounts, however they are written.

    Raises: BadValue if an amount is not a quantity.
    """
    return left.keys() == right.keys() and all(
        exact(text).billionths == exact(right[name]).billionths for name, text in left.items()
    )


def effective_requests(pod: Pod, kubernetes: KubernetesVersion = NEWEST) -> dict[str, Amount]:
    """Return what a node must have for a pod: the most that it needs at any time, and its overhead.

    Init containers run one after the other before the containers; an init container that restarts always is a sidecar
    and runs beside all that follow it. What the pod asks for as a whole stands in place of that.

    Source: the effective requests of the Kubernetes scheduler.
    """
    asked, first = requests_of(pod)
    running = add_up(asked)
    sidecars: dict[str, Amount] = {}
    most: dict[str, Amount] = {}
    for container, requests in zip(pod.spec.init_containers, first, strict=True):
        own = add_up([requests])
        if is_sidecar(container):
            running = plus(running, own)
            sidecars = plus(sidecars, own)
            starting = sidecars
        else:
            starting = plus(sidecars, own)
        most = _largest(most, starting)
    whole = {**(sums_of(pod) if kubernetes >= V1_37 else EMPTY), **requests_of_whole(pod, kubernetes)}
    return plus({**_largest(running, most), **add_up([whole])}, add_up([pod.spec.overhead]))


def _largest(left: Mapping[str, Amount], right: Mapping[str, Amount]) -> dict[str, Amount]:
    """Return the larger amount of every resource."""
    largest = dict(left)
    for name, more in right.items():
        known = largest.get(name)
        if known is None or known.billionths < more.billionths:
            largest[name] = more
    return largest
