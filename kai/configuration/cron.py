"""Times that come again, as cron writes them: ``0 0 * * 1`` is every Monday at midnight, in UTC.

Five fields: minute, hour, day of the month, month, day of the week; ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``
and ``@yearly`` are the usual. cronsim reads the fields and walks back through the calendar. Kubernetes reads schedules
of CronJobs in another way (`kai.manifests.schedules`).
"""

import datetime as dt
from typing import Final, Self

import attrs
from cronsim import CronSim, CronSimError

from kai.notation import shown

WANTED: Final = 'five fields such as "0 0 * * 1", or @hourly, @daily, @weekly, @monthly, @yearly'
_FIELDS: Final = 5
_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST: Final = 1_000
_SOME_DAY: Final = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)


@attrs.frozen(kw_only=True)
class Cron:
    """Minutes of the calendar: all those that every field allows."""

    text: str
    fields: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the times that ``text`` describes.

        Raises: ValueError for text that is none, or that no day fits.
        """
        fields = _SHORT.get(text.strip().lower(), text).replace("?", "*")
        count = len(fields.split())
        if count != _FIELDS or len(fields) > _LONGEST:
            raise ValueError(f"found {count} fields, expected {WANTED}")
        made = cls(text=text, fields=fields)
        try:
            if made.before(_SOME_DAY) is None:
                raise ValueError(f"found {shown(text)}, which no day fits, expected {WANTED}")
        except CronSimError as error:
            raise ValueError(f"found {shown(text)} ({error}), expected {WANTED}") from None
        return made

    def before(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the last of these times before ``moment``, that one left out; None if there is none for years."""
        return next(CronSim(self.fields, moment, reverse=True), None)
