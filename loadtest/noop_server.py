"""The yardstick of `holdfast bench http`: an aiohttp application that answers JSON and does nothing else."""

import sys

from aiohttp import web

from holdfast.http.server import run_server
from holdfast.ports import LOOPBACK, listen

NOOP_PATH = "/noop"


async def noop(_: web.Request) -> web.Response:
    return web.json_response({"data": {"status": "ok"}})


def main() -> None:
    """Serve on the port given as the only argument."""
    app = web.Application()
    app.router.add_post(NOOP_PATH, noop)
    with listen(LOOPBACK, int(sys.argv[1]), reuse_port=True) as listener:
        run_server(app, listener)


if __name__ == "__main__":
    main()
