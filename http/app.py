"""The application factory: composes what the front end consists of."""

from aiohttp import web

from holdfast.engine.settings import Settings
from holdfast.http import health
from holdfast.http.stores import postgres_pool, redis_client, settings_key


def create_app(settings: Settings) -> web.Application:
    """The front end. Each resource is opened when the application starts and closed, in reverse order, when it ends."""
    app = web.Application()
    app[settings_key] = settings
    app.cleanup_ctx.extend((redis_client, postgres_pool))
    app.add_routes(health.routes)
    return app
