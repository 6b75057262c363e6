"""Intake: from the objects of a cluster to a snapshot; the only reader of labels and annotations.

``take_snapshot`` is the whole of it as one function; ``Intake`` remembers what it made of each object, so that the next
snapshot only pays for the objects that changed. ``expired_bind_requests`` names the orders that the snapshot no longer
counts and that should be deleted.
"""

from kai.intake.bind_requests import expired_bind_requests
from kai.intake.queues import declared_queues
from kai.intake.settings import IntakeSettings, QueueAccess
from kai.intake.snapshot import Intake, take_snapshot

__all__ = ["Intake", "IntakeSettings", "QueueAccess", "declared_queues", "expired_bind_requests", "take_snapshot"]
