"""What Prometheus is told."""

from pathlib import Path
from uuid import uuid4

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from holdfast.engine.reaper import Reaper
from holdfast.engine.settings import Settings
from holdfast.engine.shards import FIRST_EPOCH
from holdfast.engine.telemetry import METHODS
from holdfast.http.app import create_app, create_metrics_app
from holdfast.ports import LOOPBACK, available_port
from support.checking_out import checked_out, complete, reserve, start
from support.engine import SHARDS
from support.front_end import FrontEnd, serving
from support.persisting import running
from support.polling import eventually
from support.servers import OwnServer

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parse(text: str) -> Numbers:
    """The samples by name and labels; the parser refuses what Prometheus would."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def numbers(front: FrontEnd) -> Numbers:
    reply = await front.call("GET", "/metrics", token="")
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith("text/plain")
    return parse(reply.body.decode())


def grown(before: Numbers, after: Numbers, name: str, **labels: str) -> float:
    key = (name, frozenset(labels.items()))
    return after[key] - before.get(key, 0.0)


async def test_what_becomes_of_holds_is_counted(front: FrontEnd) -> None:
    before = await numbers(front)
    held = await front.reserve("A-1")
    await front.reserve("A-1", user=uuid4())
    await front.call("POST", f"/api/holds/{held.data['hold_id']}/extend")
    await front.call("DELETE", f"/api/holds/{held.data['hold_id']}")
    after = await numbers(front)

    assert grown(before, after, "holdfast_hold_attempts_total", method="redis") == 2
    assert grown(before, after, "holdfast_hold_successes_total", method="redis") == 1
    assert grown(before, after, "holdfast_hold_conflicts_total", reason="seat_held_by_another_user") == 1
    assert grown(before, after, "holdfast_hold_seconds_count", method="redis") == 2
    assert grown(before, after, "holdfast_hold_seconds_sum", method="redis") > 0
    assert grown(before, after, "holdfast_holds_extended_total") == 1
    assert grown(before, after, "holdfast_holds_released_total") == 1
    # The persister works in this process too.
    assert grown(before, after, "holdfast_persisted_entries_total") >= 3
    assert grown(before, after, "holdfast_persist_seconds_count") >= 1


async def test_the_layer_that_answers_is_counted(front: FrontEnd) -> None:
    """Redis the first time, and this process as soon as it has heard of the hold."""
    before = await numbers(front)
    await front.reserve("A-1")

    async def answered_here() -> bool:
        await front.reserve("A-1", user=uuid4())
        return grown(before, await numbers(front), "holdfast_cache_hits_total", layer="hot") > 0

    await eventually(answered_here, "the hot cache refuses")
    assert grown(before, await numbers(front), "holdfast_cache_hits_total", layer="redis") >= 1


async def test_what_becomes_of_checkouts_is_counted(front: FrontEnd) -> None:
    before = await numbers(front)
    await reserve(front, "A-1", cart="bought")
    await complete(front, await checked_out(front, cart="bought"))
    late = await reserve(front, "A-2", cart="late")
    await front.rig.lapse(late)
    assert (await start(front, cart="late")).error == "hold_expired"
    given_back = await reserve(front, "A-3")
    await front.call("DELETE", f"/api/holds/{given_back}")
    assert (await front.call("POST", f"/api/holds/{given_back}/extend")).error == "hold_released"
    after = await numbers(front)

    assert grown(before, after, "holdfast_holds_extended_total") == 1
    assert grown(before, after, "holdfast_holds_converted_total") == 1
    assert grown(before, after, "holdfast_holds_expired_before_checkout_total") == 1
    assert grown(before, after, "holdfast_hold_extensions_failed_total") == 1


async def test_runs_of_the_reaper_and_what_they_expire_are_counted(front: FrontEnd) -> None:
    """The reaper is a keeper's; here it works in the process of the front end."""
    before, on = await numbers(front), front.rig.on
    await front.rig.lapse(await reserve(front, "A-1"), await reserve(front, "A-2"))

    async with running(Reaper(front.rig.redis, on.backend, shards=SHARDS, epoch=FIRST_EPOCH).run(0.01)):

        async def counted() -> bool:
            after = await numbers(front)
            return (
                grown(before, after, "holdfast_reaper_runs_total", result="done") >= 2
                and grown(before, after, "holdfast_holds_reaped_total") == 2
                and grown(before, after, "holdfast_holds_expired_total") == 2
            )

        await eventually(counted, "runs and expiries are counted")


async def test_holds_without_redis_are_counted_as_fallbacks(tmp_path: Path, database_dsn: str) -> None:
    own = OwnServer(tmp_path / "valkey")
    try:
        async with serving(own.url, database_dsn) as front:
            # Its answer says that Postgres knows of the event.
            await reserve(front, "B-1", user=uuid4())
            own.stop()
            before = await numbers(front)

            async def held() -> bool:
                return (await front.reserve("A-1")).status == 201

            await eventually(held, "Postgres holds a seat")
            await front.reserve("A-1", user=uuid4())
            after = await numbers(front)

            assert grown(before, after, "holdfast_hold_fallbacks_total") == 2
            assert grown(before, after, "holdfast_hold_successes_total", method="postgres") == 1
            assert grown(before, after, "holdfast_hold_seconds_count", method="postgres") == 2
            assert grown(before, after, "holdfast_cache_hits_total", layer="postgres") == 2
            # What was turned away meanwhile was an attempt all the same.
            methods = [grown(before, after, "holdfast_hold_attempts_total", method=each) for each in METHODS]
            assert sum(methods) == 2 + grown(before, after, "holdfast_hold_failures_total")
            shard = str(front.rig.shard)
            assert after["holdfast_shard_mode", frozenset({("shard", shard), ("mode", "db")})] == 1
            assert after["holdfast_shard_epoch", frozenset({("shard", shard)})] > FIRST_EPOCH
            assert after["holdfast_store_up", frozenset({("store", "redis")})] == 0

            # What Postgres decides on holds is counted like what Redis does.
            await complete(front, await checked_out(front))
            sold = await numbers(front)
            assert grown(after, sold, "holdfast_holds_extended_total") == 1
            assert grown(after, sold, "holdfast_holds_converted_total") == 1
    finally:
        own.stop()


async def test_the_lag_of_what_is_not_persisted_is_told(still: FrontEnd) -> None:
    await still.rig.drain()
    shard = frozenset({("shard", str(still.rig.shard))})
    assert (await numbers(still))["holdfast_persist_lag_entries", shard] == 0
    await still.reserve("A-1")
    await still.reserve("A-2")

    found = await numbers(still)

    assert found["holdfast_persist_lag_entries", shard] == 2
    assert found["holdfast_persist_lag_seconds", shard] > 0


async def test_shards_are_told_with_mode_epoch_and_lag(front: FrontEnd) -> None:
    await front.reserve("A-1")
    found = await numbers(front)

    shard = str(front.rig.shard)
    assert found["holdfast_shard_mode", frozenset({("shard", shard), ("mode", "redis")})] == 1
    assert found["holdfast_shard_mode", frozenset({("shard", shard), ("mode", "db")})] == 0
    assert found["holdfast_shard_epoch", frozenset({("shard", shard)})] == 1
    assert found["holdfast_persist_lag_entries", frozenset({("shard", shard)})] == 0
    assert found["holdfast_store_up", frozenset({("store", "redis")})] == 1


async def test_metrics_answer_when_nothing_is_behind_them() -> None:
    settings = Settings(
        redis_url=f"redis://{LOOPBACK}:{available_port(LOOPBACK)}/0",
        postgres_dsn=f"postgresql://nobody@{LOOPBACK}:{available_port(LOOPBACK)}/nothing",
    )
    for app in (create_app(settings), create_metrics_app(settings)):
        async with TestClient(TestServer(app)) as client, client.get("/metrics") as response:
            found = parse(await response.text())

        assert found["holdfast_store_up", frozenset({("store", "redis")})] == 0
        assert found["holdfast_store_up", frozenset({("store", "postgres")})] == 0


async def test_readers_of_live_feeds_are_counted(front: FrontEnd) -> None:
    path, headers = f"/api/events/{front.event.event_id}/live", {"Authorization": f"Bearer {front.token()}"}
    key = ("holdfast_live_readers", frozenset[tuple[str, str]]())
    before = (await numbers(front))[key]
    async with front.client.get(path, headers=headers) as response:
        await response.content.readuntil(b"event: snapshot")
        assert (await numbers(front))[key] == before + 1
