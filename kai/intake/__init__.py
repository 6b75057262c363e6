"""Intake: turns the objects of a cluster into a snapshot; the only reader of labels and annotations.

``take_snapshot`` does all of it as one function. ``Intake`` caches the record of each object, so that the next
snapshot costs only the objects that changed. ``expired_bind_requests`` returns the bind requests that the snapshot no
longer counts and that should be deleted.
"""

from kai.intake.bind_requests import expired_bind_requests
from kai.intake.queues import declared_queues
from kai.intake.settings import IntakeSettings, QueueAccess
from kai.intake.snapshot import Intake, take_snapshot

__all__ = ["Intake", "IntakeSettings", "QueueAccess", "declared_queues", "expired_bind_requests", "take_snapshot"]
