"""Admission: the changes that kai makes to objects on their way into the cluster, and the objects that it refuses."""

from kai.roles.admission.review import AdmissionRequest, AdmissionResponse, AdmissionSettings, read_review, write_review
from kai.roles.admission.webhooks import mutate, validate

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "AdmissionSettings",
    "mutate",
    "read_review",
    "validate",
    "write_review",
]
