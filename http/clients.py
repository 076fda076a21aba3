"""Where a request comes from."""

import ipaddress
from functools import lru_cache
from hashlib import blake2b

from aiohttp import web

from holdfast.engine.settings import SettingsError, variable

# Scripts take at most fourteen bytes.
_DIGEST_BYTES = 7
_USER_AGENT_CHARACTERS_MAX = 256

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ClientAddresses:
    """Finds the address of a client, behind proxies only if they are trusted.

    Each proxy appends the address it was called from to X-Forwarded-For. Read from the right, the first address that is
    not one of ours is the client; anything left of it is the client's own word.
    """

    def __init__(self, trusted_proxies: str | None) -> None:
        try:
            words = (trusted_proxies or "").split(",")
            self._trusted = tuple(ipaddress.ip_network(word, strict=False) for word in words if word)
        except ValueError:
            name = "trusted_proxies"
            raise SettingsError(
                f"{name} ({variable(name)}) must be addresses or networks with commas between."
            ) from None

    def of(self, request: web.Request) -> str:
        """The address as text, or nothing if it cannot be told."""
        remote = request.remote or ""
        if not self._trusted or not _is_within(remote, self._trusted):
            return remote
        for hop in reversed(",".join(request.headers.getall("X-Forwarded-For", ())).split(",")):
            address = _plain(hop)
            if address is None:
                return remote
            remote = address
            if not _is_within(address, self._trusted):
                break
        return remote


@lru_cache(maxsize=50_000)
def address_digest(address: str) -> str:
    """What limits per address know an address by."""
    return blake2b(address.encode(), digest_size=_DIGEST_BYTES).hexdigest() if address else ""


@lru_cache(maxsize=10_000)
def printable(user_agent: str) -> str:
    """A client's name for itself as the audit can keep it: short, and without what cannot be written down."""
    return "".join(each for each in user_agent[:_USER_AGENT_CHARACTERS_MAX] if each.isprintable())


@lru_cache(maxsize=10_000)
def _is_within(address: str, networks: tuple[_Network, ...]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def _plain(hop: str) -> str | None:
    try:
        return str(ipaddress.ip_address(hop.strip()))
    except ValueError:
        return None
