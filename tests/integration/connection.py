"""An encrypted connection to a server of this machine that may go away at any moment."""

import http.client
import socket
import ssl


class Connection(http.client.HTTPSConnection):
    """A connection to a server that has a certificate of ours, closed whatever happens to it.

    ``http.client`` connects a socket and gives it to ``ssl``, which raises without closing it where the server has
    reset the connection in between: pytest then fails whichever test runs. Here the socket is encrypted first and
    connected then, and is in our hands all the time.
    """

    def __init__(self, host: str, port: int, *, ca_file: str, timeout: float) -> None:
        self._encrypting = ssl.create_default_context(cafile=ca_file)
        super().__init__(host, port, timeout=timeout, context=self._encrypting)

    def connect(self) -> None:
        """Connect, and shake hands. Raises: OSError."""
        stream = self._encrypting.wrap_socket(socket.socket(), server_hostname=self.host)
        try:
            stream.settimeout(self.timeout)
            stream.connect((self.host, self.port))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            stream.close()
            raise
        self.sock = stream
