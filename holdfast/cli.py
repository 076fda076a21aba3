"""The command `holdfast`: runs a subcommand, and turns expected failures into a sentence and an exit code."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

import holdfast
from holdfast.commands import (
    bench,
    chaos,
    event,
    keep,
    loadtest,
    migrate,
    mode,
    rebuild,
    reconcile,
    replay,
    serve,
    status,
    token,
    up,
    verify,
)
from holdfast.engine.settings import SettingsError
from holdfast.errors import OperatorError

OK, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130

# A command is a module with `add_parser(commands)`, which sets the default `run` to a function of the parsed
# arguments that returns nothing and raises OperatorError when it fails.
COMMANDS = (
    up,
    serve,
    keep,
    migrate,
    event,
    mode,
    status,
    verify,
    replay,
    reconcile,
    rebuild,
    token,
    bench,
    chaos,
    loadtest,
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="A seat-hold engine for flash sales.",
        epilog="example: holdfast up",
    )
    parser.add_argument("--version", action="version", version=f"holdfast {holdfast.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 used wrongly, 130 interrupted."""
    try:
        parsed = build_parser().parse_args(arguments)
        _raise_interrupts()
        parsed.run(parsed)
        sys.stdout.flush()
    except SettingsError as error:
        return _complain(error, USAGE)
    except OperatorError as error:
        return _complain(error, FAILURE)
    except BrokenPipeError:
        # The reader, such as `head`, has left; what the interpreter flushes at its end must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


def _raise_interrupts() -> None:
    """From here on there may be something to clean up, so Ctrl-C is an exception and not the end at once."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _complain(error: Exception, code: int) -> int:
    print(f"holdfast: {error}", file=sys.stderr)
    return code
