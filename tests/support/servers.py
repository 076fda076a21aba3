"""Servers that a test may stop, restart and configure as it likes."""

from pathlib import Path
from urllib.parse import urlsplit

from holdfast.embedded import Server, start_valkey


class OwnServer:
    """A Valkey of the test's own, which comes back with its data on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: Server = start_valkey(directory)
        self.url = self._server.url

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        """Start another incarnation on the same port, with the data of the last."""
        self._server = start_valkey(self._directory, port=urlsplit(self.url).port)

    def restart(self) -> None:
        self.stop()
        self.start()
