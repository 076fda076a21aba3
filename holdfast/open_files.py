"""How many files and sockets this process may have open."""

import resource

from holdfast.errors import OperatorError

# More than that is no use to one process, and some systems say "unlimited" where they do not mean it.
ENOUGH = 1_048_576


def allow_open_files(needed: int | None = None) -> int:
    """Let this process, and those it starts, have as many files open as it is allowed to; how many those are.

    Systems give programs a soft limit, often of 1,024, which they may raise to the hard one. Raises OperatorError if
    that is less than what is needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    allowed = ENOUGH if soft == resource.RLIM_INFINITY else soft
    if needed is not None and allowed < needed:
        raise OperatorError(
            f"This needs {needed:,} open files in one process, and the hard limit is {allowed:,}: raise it with "
            f"`ulimit -Hn {needed}` as root, or in /etc/security/limits.conf."
        )
    return allowed
