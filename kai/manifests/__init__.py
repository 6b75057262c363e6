"""Manifests as users have them: workloads become pods and groups, faults become findings with their places.

``kai.manifests.manifest_reading`` reads texts and checks each document, ``kai.manifests.expansion`` adds the objects
that controllers and the pod grouper would add, ``kai.manifests.lint`` checks queues and jobs together.
"""

from kai.manifests.codes import CODES, Code
from kai.manifests.expansion import Expansion, Later, Problem, Surroundings, expand
from kai.manifests.findings import Document, Finding, RefusedError
from kai.manifests.manifest_reading import Reading, documents_of, open_text, read
from kai.manifests.unused import Unused

__all__ = [
    "CODES",
    "Code",
    "Document",
    "Expansion",
    "Finding",
    "Later",
    "Problem",
    "Reading",
    "RefusedError",
    "Surroundings",
    "Unused",
    "documents_of",
    "expand",
    "open_text",
    "read",
]
