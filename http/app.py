"""The application factory: composes what the front end consists of."""

import asyncio

from aiohttp import web

from holdfast.engine.settings import Settings
from holdfast.http import catalogue, checkouts, health, holds, reserve, stores
from holdfast.http.auth import Authenticator
from holdfast.http.clients import ClientAddresses
from holdfast.http.endpoints import add_endpoints, addresses_key, authenticator_key
from holdfast.http.openapi import openapi_document, openapi_endpoint

# The endpoint of the hot path comes first, because paths are tried in this order.
ENDPOINTS = [
    *reserve.endpoints,
    *holds.endpoints,
    *checkouts.endpoints,
    *catalogue.endpoints,
    *health.endpoints,
]


def create_app(settings: Settings) -> web.Application:
    """The front end. Each resource is opened when the application starts and closed, in reverse order, when it ends."""
    app = web.Application()
    app[stores.settings_key] = settings
    app[authenticator_key] = Authenticator(settings)
    app[addresses_key] = ClientAddresses(settings.trusted_proxies)
    app[stores.stopping_key] = asyncio.Event()
    app.on_shutdown.append(_stop)
    app.cleanup_ctx.extend(
        (
            stores.redis_client,
            stores.postgres_pool,
            stores.catalogue,
            stores.hold_service,
            stores.checkouts,
            stores.hot_cache,
            stores.refusal_audit,
        )
    )
    add_endpoints(app, [*ENDPOINTS, openapi_endpoint(openapi_document(ENDPOINTS))])
    return app


async def _stop(app: web.Application) -> None:
    app[stores.stopping_key].set()
