"""What processes write to stderr."""

import json
import logging
import sys

import pytest

from holdfast.engine.settings import LogFormat
from holdfast.logs import JsonFormatter, log_to_stderr


@pytest.fixture(autouse=True)
def untouched_logging() -> object:
    root = logging.getLogger()
    before = (root.level, root.handlers[:], logging.getLogger("holdfast").level)
    yield
    root.level, root.handlers[:] = before[:2]
    logging.getLogger("holdfast").setLevel(before[2])


def test_a_record_is_one_line_of_json() -> None:
    record = logging.makeLogRecord(
        {"name": "holdfast.x", "levelno": 30, "levelname": "WARNING", "msg": "two\nlines of %s", "args": ("it",)}
    )
    record.created = 1_700_000_000.25

    line = JsonFormatter().format(record)

    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "warning",
        "logger": "holdfast.x",
        "message": "two\nlines of it",
    }


def test_a_request_and_an_exception_are_named() -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info(), "request_id": "r-1"})

    line = json.loads(JsonFormatter().format(record))

    assert line["request_id"] == "r-1"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: no such thing")


@pytest.mark.parametrize("log_format", LogFormat)
def test_holdfast_tells_what_it_does_and_libraries_only_what_worries_them(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr(log_format)

    logging.getLogger("holdfast.engine").info("expired 3 holds")
    logging.getLogger("asyncio").info("using a loop")
    logging.getLogger("asyncio").warning("slow")

    lines = capsys.readouterr().err.splitlines()
    assert ["expired 3 holds" in lines[0], "slow" in lines[1]] == [True, True]
    assert len(lines) == 2
    assert all(line.startswith("{") == (log_format is LogFormat.JSON) for line in lines)
