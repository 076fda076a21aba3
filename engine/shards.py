"""Opening shards of a server for service: the fence, the server's identity, the scripts."""

import asyncio
from collections.abc import Mapping, Sequence

from redis.asyncio import Redis

from holdfast.engine.errors import Unavailable
from holdfast.engine.keys import SHARD_COUNT, ShardKeys
from holdfast.engine.wire import Wire
from holdfast.lua import scripts

# Where a server of one's own, of which no Postgres knows, begins.
FIRST_EPOCH = 1

_SCAN_COUNT = 1_000


class ShardCountError(Exception):
    """The server holds data spread over another number of shards; the text is one sentence for the operator."""


async def claim_server(wire: Wire, shards: int) -> None:
    """Note on a server how many shards it has. Raises ShardCountError if it has another number already."""
    await wire.call("SET", SHARD_COUNT, shards, "NX")
    _check_count(int(await wire.call("GET", SHARD_COUNT) or 0), shards)


async def open_epoch(
    wire: Wire, opened: Sequence[ShardKeys], *, events: int = 0, incarnation: bytes | None = None
) -> None:
    """Put shards into service on this server, each under its epoch, with the scripts.

    `incarnation` is the one that has the epoch's keys, if it matters; Unavailable is raised if this is another one.

    The `run` key says on which incarnation of the server the epoch was opened; a front end that meets a server without
    the scripts compares the two. `base` says how many events the epoch began with: a log that began with none tells
    the whole story of its shard.

    A server that came back with its data has the `open` keys of epochs of the incarnation before, and only the
    missing scripts keep those from being served. So they are removed first. Everything is sent in one turn of the
    loop: it reaches the server that was looked at, in this order, or breaks off.
    """
    connections = wire.connections
    running = await read_incarnation(wire)
    if incarnation not in (None, running):
        raise Unavailable("Redis is not the server that the epoch was built on")
    stale = await _opened_elsewhere(wire, running)
    if wire.connections != connections:
        raise Unavailable("the connection to Redis changed while shards were opened on it")
    calls = [wire.start("UNLINK", key) for key in stale]
    calls += [wire.start("SCRIPT", "LOAD", script.source) for script in scripts().values()]
    calls += [wire.start("SET", *pair) for keys in opened for pair in _service(keys, running, events)]
    await asyncio.gather(*calls)


async def open_shards(redis: Redis, shards: int, epoch: int = FIRST_EPOCH) -> None:
    """Put every shard into service, under one epoch, on a server of one's own that nobody else opens or restarts."""
    await redis.set(SHARD_COUNT, shards, nx=True)
    _check_count(int(await redis.get(SHARD_COUNT) or 0), shards)
    incarnation = _incarnation(await redis.info("server"), await redis.info("replication"))
    for script in scripts().values():
        await redis.script_load(script.source)
    for shard in range(shards):
        for key, value in _service(ShardKeys(shard, epoch), incarnation, 0):
            await redis.set(key, value)


def _service(keys: ShardKeys, incarnation: bytes, events: int) -> tuple[tuple[bytes, bytes | int], ...]:
    """The keys of an epoch in service, the one that lets scripts in last."""
    return (keys.key("base"), events), (keys.key("run"), incarnation), (keys.key("open"), keys.epoch)


def _check_count(stored: int, shards: int) -> None:
    if stored != shards:
        raise ShardCountError(
            f"This Redis was set up with {stored} shards; start Holdfast with HOLDFAST_SHARDS={stored}."
        )


async def read_incarnation(wire: Wire) -> bytes:
    """The name of this incarnation of the server.

    A server that is made to follow another one and then to lead again keeps its process, its run id and its scripts,
    and has the other's data. Only the name of its history in replication tells.
    """
    info: bytes = await wire.call("INFO", "server", "replication")
    lines = (line.partition(":") for line in info.decode().splitlines())
    facts = {name: value for name, _, value in lines}
    return _incarnation(facts, facts)


def _incarnation(server: Mapping[str, str], replication: Mapping[str, str]) -> bytes:
    return f"{server['run_id']}.{replication['master_replid']}".encode()


async def find_broken(wire: Wire, served: Mapping[int, int]) -> dict[int, str]:
    """Of the shards (and epochs) that Redis should serve, those that this server must not, and why.

    Raises a BackendError when the server does not answer.
    """
    if not served:
        return {}
    incarnation = await read_incarnation(wire)
    shards = [ShardKeys(shard, epoch) for shard, epoch in served.items()]
    found = await asyncio.gather(*[wire.start("MGET", keys.key("open"), keys.key("run")) for keys in shards])
    broken = {}
    for keys, (is_open, opened_on) in zip(shards, found, strict=True):
        if opened_on is None:
            broken[keys.shard] = "Redis has lost its data"
        elif opened_on != incarnation:
            broken[keys.shard] = "Redis is another server than the epoch was opened on, or has been restarted"
        elif is_open is None:
            broken[keys.shard] = "the epoch is closed in Redis"
    return broken


async def _opened_elsewhere(wire: Wire, incarnation: bytes) -> list[bytes]:
    """The `open` keys on this server that were set on another incarnation of it."""
    found: list[bytes] = []
    cursor = b"0"
    while True:
        cursor, keys = await wire.call("SCAN", cursor, "MATCH", "hf:{s*}:e*:open", "COUNT", _SCAN_COUNT)
        runs = [key.removesuffix(b"open") + b"run" for key in keys]
        opened_on = await asyncio.gather(*(wire.call("GET", run) for run in runs))
        found += [key for key, opened in zip(keys, opened_on, strict=True) if opened != incarnation]
        if cursor == b"0":
            return found
