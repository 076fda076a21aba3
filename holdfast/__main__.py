"""`python -m holdfast` is the command `holdfast`.

Everything a command needs takes a while to import. Ctrl-C in that time ends the process as it does later, which is why
nothing is imported here before that is arranged.
"""

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130


def run() -> None:
    """Run the command of this process."""
    # Who has asked not to be interrupted, as a shell does for what it puts into the background, is not.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from holdfast.cli import main  # noqa: PLC0415 - see above.

    sys.exit(main())


def _leave(_: int, __: FrameType | None) -> None:
    # An exception could hit any line of any module, some of which take it for an error or drop it.
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
