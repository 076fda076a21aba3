"""TCP ports: listening on one, and finding out whether one can be had."""

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.errors import OperatorError

LOOPBACK = "127.0.0.1"

# A flash sale opens with a burst of connections; the kernel caps this at its own limit.
BACKLOG = 4096


def listen(host: str, port: int, *, reuse_port: bool = False) -> socket.socket:
    """A listening socket, or an OperatorError that says why there is none. Port 0 takes any free port."""
    with _errors_explained(host, port):
        return socket.create_server((host, port), family=_family(host), backlog=BACKLOG, reuse_port=reuse_port)


def reserve(host: str, port: int) -> socket.socket:
    """A socket that holds a port nobody else has, for processes of ours that listen on it with `reuse_port`.

    It does not listen itself, so it takes no connection away from them. Port 0 takes any free port. Only SO_REUSEPORT
    is set: with SO_REUSEADDR a second holder could be had while nobody listens yet.
    """
    number = available_port(host, port)
    holder = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with _errors_explained(host, number):
            holder.bind((host, number))
    except BaseException:
        holder.close()
        raise
    return holder


def available_port(host: str, port: int = 0) -> int:
    """The port itself if it can be had, any free one for 0, else an OperatorError."""
    with listen(host, port) as probe:
        number: int = probe.getsockname()[1]
        return number


def await_listener(host: str, port: int, timeout_s: float = 30.0) -> None:
    """Return once somebody answers on a port, or raise an OperatorError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection((host, port), timeout=1.0):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise OperatorError(f"Nothing answered on port {port} within {timeout_s:.0f} seconds.") from None
            time.sleep(0.02)


def http_url(host: str, port: int) -> str:
    """The address for a client on this machine; one that listens everywhere is reached on the loopback address."""
    reachable = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - looked up, not bound.
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextmanager
def _errors_explained(host: str, port: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OperatorError(f"Port {port} on {host} is already in use.") from None
        raise OperatorError(f"Cannot listen on port {port} of {host}: {error.strerror}.") from None
