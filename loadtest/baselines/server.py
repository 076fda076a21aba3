"""A front end that holds seats in one of the plain ways.

Server settings, token verification, validation, the look-up of event and seat, and the reply are Holdfast's own.
"""

import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from aiohttp import web

from holdfast.engine.settings import Settings
from holdfast.engine.status import Status
from holdfast.http import stores
from holdfast.http.auth import Authenticator
from holdfast.http.clients import ClientAddresses
from holdfast.http.endpoints import BUYERS, Call, Endpoints, add_endpoints, addresses_key, authenticator_key
from holdfast.http.errors import problem, reason_of
from holdfast.http.holding import find_event, is_on_sale
from holdfast.http.reserve import Reserved, ReserveRequest, find_seat
from holdfast.http.server import run_server
from holdfast.loadtest.baselines.ways import Way, WayName, Wish, open_way
from holdfast.persistence.pool import open_pool
from holdfast.ports import listen

# Of 8, 16 and 32 the number with which the ways were fastest on two cores.
POOL_SIZE = 16

way_key: web.AppKey[Way] = web.AppKey("way")
name_key = web.AppKey("way_name", WayName)

endpoints = Endpoints()


@endpoints.post(
    "/api/events/{event}/seats/{seat}/reserve",
    summary="Hold one seat",
    roles=BUYERS,
    texts=("seat",),
    body=ReserveRequest,
    replies={201: Reserved, 200: Reserved},
    idempotency_key=True,
)
async def reserve(call: Call, _: ReserveRequest) -> web.StreamResponse:
    event = await find_event(call)
    seat_id, seat = find_seat(event, call.request.match_info["seat"])
    if not is_on_sale(event):
        return call.refuse(problem(reason_of(Status.EVENT_SALES_CLOSED)))
    now, ttl = datetime.now(UTC), timedelta(milliseconds=event.ttl_ms)
    wish = Wish(event, seat, call.principal.user_id, uuid4(), now, now + ttl)
    hold_id = await call.app[way_key].hold(wish)
    if hold_id is None:
        return call.refuse(problem(reason_of(Status.SEAT_HELD_BY_ANOTHER_USER)))
    document = event.seat_at[seat.value]
    return call.answer(
        201 if hold_id == wish.hold_id else 200,
        Reserved(
            hold_id=hold_id,
            seat_id=seat_id,
            event_id=event.event_id,
            block_name=event.zones[seat.zone].document.name,
            row=document.row,
            seat_number=str(document.number),
            status="held",
            held_until=wish.held_until,
            held_until_unix=int(wish.held_until.timestamp()),
            expires_in_seconds=int(ttl.total_seconds()),
            message="Seat reserved. Proceed to checkout.",
            durability="redis" if call.app[name_key] is WayName.REDIS_ONLY else "postgres",
        ),
    )


def create_baseline_app(settings: Settings, name: WayName) -> web.Application:
    """The front end of one way."""
    app = web.Application()
    app[stores.settings_key] = settings
    app[authenticator_key] = Authenticator(settings)
    app[addresses_key] = ClientAddresses(settings.trusted_proxies)
    app[name_key] = name
    app.cleanup_ctx.extend((_postgres_pool, stores.catalogue, _way))
    add_endpoints(app, endpoints)
    return app


async def _postgres_pool(app: web.Application) -> AsyncIterator[None]:
    settings = app[stores.settings_key]
    async with open_pool(settings.postgres_dsn, name="baseline", max_size=POOL_SIZE, resets=False) as pool:
        app[stores.postgres_key] = pool
        yield


async def _way(app: web.Application) -> AsyncIterator[None]:
    async with open_way(app[name_key], app[stores.settings_key].redis_url, app[stores.postgres_key]) as way:
        app[way_key] = way
        yield


def main() -> None:
    """Serve the way given as the only argument, with the settings of the environment."""
    settings = Settings.read(os.environ)
    with listen(settings.host, settings.port, reuse_port=True) as listener:
        run_server(create_baseline_app(settings, WayName(sys.argv[1])), listener)


if __name__ == "__main__":
    main()
