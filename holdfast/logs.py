"""What long-running processes say on stderr: one line for each thing that happened, as JSON or as text."""

import logging
import sys
from datetime import UTC, datetime

import msgspec

from holdfast.engine.settings import LogFormat

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. The request is named where something happened for one, the exception where there was one."""

    time: datetime
    level: str
    logger: str
    message: str
    request_id: str | None = None
    exception: str | None = None


class JsonFormatter(logging.Formatter):
    """Writes records as JSON. A line break inside of one is escaped, so a line is always one record."""

    def format(self, record: logging.LogRecord) -> str:
        line = Line(
            time=datetime.fromtimestamp(record.created, UTC),
            level=record.levelname.lower(),
            logger=record.name,
            message=record.getMessage(),
            request_id=getattr(record, "request_id", None),
            exception=self.formatException(record.exc_info) if record.exc_info else None,
        )
        return msgspec.json.encode(line).decode()


def log_to_stderr(log_format: LogFormat) -> None:
    """Write what Holdfast says, and warnings of the libraries it uses, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("holdfast").setLevel(logging.INFO)
