"""`/metrics`: what this front end, or this keeper, has counted, and how the shards are doing, for Prometheus."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import accumulate
from pathlib import Path

import redis.exceptions
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from holdfast.engine.background import beside
from holdfast.engine.telemetry import SECONDS, Sample
from holdfast.engine.worker_files import keep_writing, read_all
from holdfast.http.endpoints import Call, Endpoints, Text
from holdfast.http.stores import ANSWER_TIMEOUT_SECONDS, postgres_key, redis_key, settings_key
from holdfast.persistence.fence import ShardControl, read_controls
from holdfast.persistence.pool import POSTGRES_ERRORS
from holdfast.persistence.status import ShardStatus, shard_status

MODES = ("redis", "db", "recovering")

endpoints = Endpoints()
# Where the workers of a front end write what they count; without it this process is the only one.
numbers_key = web.AppKey("numbers", Path)


async def worker_numbers(app: web.Application) -> AsyncIterator[None]:
    """Let the other workers know what this one counts."""
    if numbers_key not in app:
        yield
        return
    async with beside(keep_writing(app[numbers_key])):
        yield


@endpoints.get("/metrics", summary="Numbers for Prometheus", replies={200: Text("text/plain")}, tag="plumbing")
async def metrics(call: Call) -> web.StreamResponse:
    """Never fails because a store is away: `holdfast_store_up` says so, and what only that store knows is left out."""
    app = call.app
    controls = await _controls(app)
    statuses = await _statuses(app, controls or ())
    families = [
        *_families(read_all(app.get(numbers_key))),
        _stores(controls is not None, statuses is not None),
        *_shards(controls or (), statuses or ()),
    ]
    return call.answer_text(expose(families), CONTENT_TYPE_LATEST)


def expose(families: Iterable[Metric]) -> bytes:
    """Families in the text form of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(tuple(families)))
    return generate_latest(registry)


class _Ready(Collector):
    """Families that are collected already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _families(samples: Iterable[Sample]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for sample in samples:
        names, values = list(sample.labels), list(sample.labels.values())
        if sample.kind == "histogram":
            histogram = families.setdefault(sample.name, HistogramMetricFamily(sample.name, sample.help, labels=names))
            assert isinstance(histogram, HistogramMetricFamily)
            bounds = [*map(str, SECONDS), "+Inf"]
            buckets = list(zip(bounds, accumulate(sample.buckets), strict=True))
            histogram.add_metric(values, buckets=buckets, sum_value=sample.value)
        else:
            kind = CounterMetricFamily if sample.kind == "counter" else GaugeMetricFamily
            family = families.setdefault(sample.name, kind(sample.name, sample.help, labels=names))
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            family.add_metric(values, sample.value)
    return families.values()


def _stores(postgres: bool, answering_redis: bool) -> Metric:
    family = GaugeMetricFamily("holdfast_store_up", "Whether the store answers.", labels=["store"])
    family.add_metric(["redis"], float(answering_redis))
    family.add_metric(["postgres"], float(postgres))
    return family


def _shards(controls: Iterable[ShardControl], statuses: Iterable[ShardStatus]) -> Iterable[Metric]:
    mode = GaugeMetricFamily("holdfast_shard_mode", "1 for the mode a shard is in.", labels=["shard", "mode"])
    epoch = GaugeMetricFamily("holdfast_shard_epoch", "The epoch of a shard.", labels=["shard"])
    for control in controls:
        for each in MODES:
            mode.add_metric([str(control.shard), each], float(control.mode == each))
        epoch.add_metric([str(control.shard)], control.epoch)
    entries = GaugeMetricFamily("holdfast_persist_lag_entries", "Log entries not persisted yet.", labels=["shard"])
    seconds = GaugeMetricFamily(
        "holdfast_persist_lag_seconds", "Age of the first log entry that is not persisted.", labels=["shard"]
    )
    for status in statuses:
        entries.add_metric([str(status.shard)], status.lag_entries)
        seconds.add_metric([str(status.shard)], status.lag_seconds)
    return mode, epoch, entries, seconds


async def _controls(app: web.Application) -> tuple[ShardControl, ...] | None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS), app[postgres_key].acquire() as connection:
            return tuple((await read_controls(connection, range(app[settings_key].shards))).values())
    except POSTGRES_ERRORS:
        return None


async def _statuses(app: web.Application, controls: Iterable[ShardControl]) -> Sequence[ShardStatus] | None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
            await app[redis_key].ping()
            return [await shard_status(app[redis_key], control) for control in controls]
    except (OSError, TimeoutError, redis.exceptions.RedisError):
        return None
