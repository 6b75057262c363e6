"""The metric: what racks draw. What is in the default registry of prometheus_client, the scheduler shows."""

from collections.abc import Iterable

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily


class Drawn:
    """Shows ``rack_power_watts``, as the last cycle left it; racks that are gone leave nothing behind."""

    def __init__(self) -> None:
        self.watts: dict[str, int] = {}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily("rack_power_watts", "What pods draw in a rack.", labels=["rack"])
        for rack, watts in self.watts.items():
            family.add_metric([rack], watts)
        yield family


DRAWN = Drawn()
REGISTRY.register(DRAWN)
