"""What Prometheus is told."""

from uuid import uuid4

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from holdfast.engine.settings import Settings
from holdfast.http.app import create_app, create_metrics_app
from holdfast.ports import LOOPBACK, available_port
from support.front_end import FrontEnd

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
    layers = [grown(before, after, "holdfast_cache_hits_total", layer=layer) for layer in ("hot", "redis")]
    assert sum(layers) == 2
    assert grown(before, after, "holdfast_holds_extended_total") == 1
    assert grown(before, after, "holdfast_holds_released_total") == 1
    # The persister works in this process too.
    assert grown(before, after, "holdfast_persisted_entries_total") >= 3
    assert grown(before, after, "holdfast_persist_seconds_count") >= 1


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
