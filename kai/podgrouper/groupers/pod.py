"""Pods without an owner, and Spark's, whose executors belong to the driver pod."""

from typing import ClassVar

import attrs

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import standard_draft
from kai.podgrouper.settings import KindPattern

SPARK_NAME = "spark-app-name"
SPARK_SELECTOR = "spark-app-selector"


class Pod:
    """A group for the pod at the top of the chain; for Spark, one for the application."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("", "v1", "Pod"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group, named after the application where Spark labels say which.

        Raises: InputError when the application has an empty name.
        """
        draft = standard_draft(request, request.owner)
        labels = request.pod.labels
        if SPARK_NAME not in labels or SPARK_SELECTOR not in labels:
            return draft
        if not labels[SPARK_SELECTOR]:
            field = f'metadata.labels["{SPARK_SELECTOR}"]'
            raise request.pod.error(field, labels[SPARK_SELECTOR], "the name of the Spark application")
        return attrs.evolve(draft, name=labels[SPARK_SELECTOR])
