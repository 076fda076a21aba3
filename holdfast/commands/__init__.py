"""One module per command. What they share is here."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from holdfast.data_dir import DEFAULT_DATA_DIR, DataDir
from holdfast.engine.settings import LogFormat, Settings, variable

if TYPE_CHECKING:
    # The class has no public name, and is generic only for the type checker.
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


def read_settings(**flags: object) -> Settings:
    """The settings of this process, from its environment and the flags it was given."""
    return Settings.read(os.environ, **flags)


def read_server_settings(data_dir: Path) -> Settings:
    """Settings for a command that looks after running servers.

    Those of the environment or, where it names none, those of the `holdfast up` that runs on the data directory.
    """
    running = DataDir(data_dir).read_run_file()
    flags = {name: running.get(name) for name in ("redis_url", "postgres_dsn") if not os.environ.get(variable(name))}
    return read_settings(**flags)


def own_command(*arguments: str) -> list[str]:
    """The command line that runs this Holdfast in another process; -P keeps the current directory off its path."""
    return [sys.executable, "-P", "-m", "holdfast", *arguments]


def add_data_dir_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that names the data directory of `holdfast up`."""
    parser.add_argument(
        "--data-dir", type=Path, default=DEFAULT_DATA_DIR, metavar="DIR", help="data directory (default: %(default)s)"
    )


def add_log_format_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that says how a process writes its log."""
    parser.add_argument(
        "--log-format",
        choices=tuple(LogFormat),
        metavar="FORM",
        help="write the log on stderr as json or text (HOLDFAST_LOG_FORMAT, default json)",
    )


def positive(text: str) -> int:
    """A whole number above zero, as an argument type."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above zero")
    return number


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows as lines, with their cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
