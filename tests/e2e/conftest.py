"""Commands that end with the test that starts them."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.commands import HOLDFAST, Command, Up, ordinary_user, wait_until


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Starts `holdfast` with the arguments given, and ends it with the test."""
    started: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        directory = tmp_path / f"command-{len(started)}"
        directory.mkdir()
        started.append(Command([*HOLDFAST, *arguments], directory, environment))
        return started[-1]

    yield start
    for command in started:
        command.kill()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """Starts `holdfast up` on `.holdfast` in the test's directory, or on another one, and ends it with the test."""
    started: list[Up] = []

    def start(data_dir: Path = tmp_path / ".holdfast", port: int = 0, ordinary: bool = False, **environment: str) -> Up:
        directory = tmp_path / f"up-{len(started)}"
        directory.mkdir()
        environment = {"HOLDFAST_PORT": str(port), **environment}
        arguments, identity = ordinary_user() if ordinary else (HOLDFAST, {})
        started.append(Up(data_dir, arguments, directory, environment=environment, **identity))
        return started[-1]

    yield start
    for command in started:
        command.kill()
    for command in started:
        wait_until(command.left_nothing, "the children of `up` are gone")


@pytest.fixture
def public_path() -> Iterator[Path]:
    """A directory that other users can reach, which pytest's own directories are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
