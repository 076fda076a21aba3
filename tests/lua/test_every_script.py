"""What is true of all scripts: each declared status has a test of its name, and servers take them as they are."""

import re
from pathlib import Path

import pytest

from holdfast.lua import Script, scripts
from support.engine import Stage

EVERY_SCRIPT = pytest.mark.parametrize("script", scripts().values(), ids=lambda script: script.name)


@EVERY_SCRIPT
def test_every_declared_status_has_a_test(script: Script) -> None:
    text = (Path(__file__).parent / f"test_{script.name}.py").read_text()
    tests = re.findall(r"^async def test_(\w+)", text, flags=re.MULTILINE)

    untested = [status for status in script.statuses if not any(name.startswith(status) for name in tests)]

    assert not untested


@EVERY_SCRIPT
async def test_the_server_knows_a_script_by_our_sha(on: Stage, script: Script) -> None:
    assert (await on.redis.script_load(script.source)) in (script.sha, script.sha.encode())


@pytest.mark.parametrize("name", ["read_event", "read_holds"])
async def test_a_reader_cannot_write(on: Stage, name: str) -> None:
    """The flag is what keeps a reader on a replica, and at a full server, from being refused."""
    script = scripts()[name]
    writing = script.source.replace(b"\n", b"\nredis.call('SET', KEYS[1], 'x')\n", 1)

    with pytest.raises(Exception, match="Write commands are not allowed from read-only scripts"):
        await on.redis.eval(writing, 1, b"hf:{s0}:test", *[b""] * len(script.arguments))
