"""The connection to an API server that a test takes away and gives back."""

import anyio
import attrs

from kai.cluster.port import Listener


@attrs.define(eq=False)
class Outage:
    """A connection that is open until a test says otherwise."""

    may_be_away: bool = False
    listeners: list[Listener] = attrs.field(factory=list)
    _back: anyio.Event | None = None

    async def opened(self) -> None:
        """Wait for the end of the outage."""
        if self._back is not None:
            await self._back.wait()

    def listen(self, listener: Listener) -> None:
        """Tell a listener when the outage is over."""
        self.listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Tell a listener nothing any more."""
        self.listeners.remove(listener)

    def begin(self) -> None:
        """Take the server away."""
        self.may_be_away, self._back = True, self._back or anyio.Event()

    def end(self) -> None:
        """Give the server back."""
        back, self.may_be_away, self._back = self._back, False, None
        if back is not None:
            back.set()
        for listener in tuple(self.listeners):
            listener(True)
