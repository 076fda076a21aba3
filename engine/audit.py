"""What the audit is told of a caller."""

import msgspec


class Caller(msgspec.Struct, frozen=True, array_like=True):
    """Where a request came from. It travels through the log as a JSON array, because every hold carries one."""

    address: str = ""
    user_agent: str = ""
    request_id: str = ""

    def meta(self) -> bytes:
        """The form in which scripts take it."""
        return msgspec.json.encode(self)
