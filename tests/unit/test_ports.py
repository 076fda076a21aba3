import select
import socket

import pytest

from holdfast.errors import OperatorError
from holdfast.ports import LOOPBACK, available_port, http_url, listen, reserve


def test_a_reserved_port_is_for_nobody_else() -> None:
    with reserve(LOOPBACK, 0) as reserved:
        port = reserved.getsockname()[1]
        for attempt in (reserve, listen, available_port):
            with pytest.raises(OperatorError, match=f"^Port {port} on 127.0.0.1 is already in use.$"):
                attempt(LOOPBACK, port)


def test_our_own_processes_share_a_reserved_port_and_get_all_its_connections() -> None:
    with reserve(LOOPBACK, 0) as reserved:
        port = reserved.getsockname()[1]
        with listen(LOOPBACK, port, reuse_port=True) as first, listen(LOOPBACK, port, reuse_port=True) as second:
            for _ in range(20):
                with socket.create_connection((LOOPBACK, port), timeout=5):
                    (listener, *_), _, _ = select.select([first, second], [], [], 5)
                    listener.accept()[0].close()


def test_an_address_of_another_machine_is_one_sentence() -> None:
    with pytest.raises(OperatorError, match=r"^Cannot listen on port 8080 of 192\.0\.2\.1: .+\.$"):
        listen("192.0.2.1", 8080)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("box.example", "http://box.example:80"),
    ],
)
def test_the_url_is_one_that_a_client_here_can_use(host: str, url: str) -> None:
    assert http_url(host, 80) == url
