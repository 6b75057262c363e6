"""Admission: what kai changes about objects on their way into the cluster, and what it does not let in."""

from kai.admission.review import AdmissionRequest, AdmissionResponse, AdmissionSettings, read_review, write_review
from kai.admission.webhooks import mutate, validate

__all__ = [
    "AdmissionRequest",
    "AdmissionResponse",
    "AdmissionSettings",
    "mutate",
    "read_review",
    "validate",
    "write_review",
]
