"""What can go wrong with the infrastructure. Expected outcomes are a Status, never one of these."""


class BackendError(Exception):
    """The backend could not answer."""


class Unavailable(BackendError):
    """The call was not sent, or was refused before it ran: nothing was written, it may be tried elsewhere."""


class Unknown(BackendError):
    """The call was sent and no answer came: it may have run. Repeat it only under the same hold id."""


class Uncommitted(Unknown):
    """Redis has decided, and Postgres has not said that it is committed. Redis itself is well."""


class Overloaded(Unavailable):
    """More calls wait than the wire or the server takes."""


class Fenced(Unavailable):
    """The epoch is closed, or the server is not the one it was opened on: the shard must not be served from it."""


class ScriptFault(BackendError):
    """A script failed in a way it never should: an invariant is broken. Never retried."""
