"""The application factory: composes what the front end consists of."""

import asyncio
from pathlib import Path

from aiohttp import web

from holdfast.engine.settings import Settings
from holdfast.http import (
    admin_events,
    admin_mode,
    admin_registry,
    admin_seats,
    catalogue,
    checkouts,
    companions,
    event_layouts,
    events,
    health,
    holds,
    live,
    metrics,
    reserve,
    stores,
)
from holdfast.http.auth import Authenticator
from holdfast.http.clients import ClientAddresses
from holdfast.http.endpoints import add_endpoints, addresses_key, authenticator_key
from holdfast.http.openapi import openapi_document, openapi_endpoint

# The endpoint of the hot path comes first, because paths are tried in this order.
ENDPOINTS = [
    *reserve.endpoints,
    *holds.endpoints,
    *companions.endpoints,
    *checkouts.endpoints,
    *events.endpoints,
    *event_layouts.endpoints,
    *live.endpoints,
    *catalogue.endpoints,
    *admin_events.endpoints,
    *admin_seats.endpoints,
    *admin_registry.endpoints,
    *admin_mode.endpoints,
    *health.endpoints,
    *metrics.endpoints,
]


def create_app(settings: Settings, *, numbers_dir: Path | None = None) -> web.Application:
    """The front end. Each resource is opened when the application starts and closed, in reverse order, when it ends.

    `numbers_dir` is where the workers of one front end tell each other what they count.
    """
    app = web.Application()
    app[stores.settings_key] = settings
    app[authenticator_key] = Authenticator(settings)
    app[addresses_key] = ClientAddresses(settings.trusted_proxies)
    app[stores.stopping_key] = asyncio.Event()
    app[admin_mode.changing_key] = asyncio.Lock()
    app.on_shutdown.append(_stop)
    app.cleanup_ctx.extend(
        (
            stores.redis_client,
            stores.postgres_pool,
            stores.hold_service,
            stores.hot_cache,
            stores.catalogue,
            stores.desk,
            stores.checkouts,
            stores.refusal_audit,
            events.reading_caches,
            event_layouts.event_layouts,
            live.live_hub,
            metrics.worker_numbers,
        )
    )
    if numbers_dir is not None:
        app[metrics.numbers_key] = numbers_dir
    app.on_shutdown.append(live.let_readers_go)
    add_endpoints(app, [*ENDPOINTS, openapi_endpoint(openapi_document(ENDPOINTS))])
    return app


async def _stop(app: web.Application) -> None:
    app[stores.stopping_key].set()


def create_metrics_app(settings: Settings) -> web.Application:
    """What a keeper serves: its health and its numbers."""
    app = web.Application()
    app[stores.settings_key] = settings
    app[stores.stopping_key] = asyncio.Event()
    app.on_shutdown.append(_stop)
    app.cleanup_ctx.extend((stores.redis_client, stores.postgres_pool))
    add_endpoints(app, [*health.endpoints, *metrics.endpoints])
    return app
