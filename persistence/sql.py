"""The queries, one statement in each file of `queries/`, found by the name of the file."""

from functools import cache
from pathlib import Path

QUERIES = Path(__file__).resolve().parent / "queries"


@cache
def query(name: str) -> str:
    """The text of a query, its header included, so that the server's own logs say what it is for."""
    return (QUERIES / f"{name}.sql").read_text(encoding="utf-8")
