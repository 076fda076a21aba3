"""That the header of every query is true of its body. Needs no server."""

import re

import pytest

from holdfast.persistence.sql import QUERIES, query

NAMES = sorted(path.stem for path in QUERIES.glob("*.sql"))
EVERY_QUERY = pytest.mark.parametrize("name", NAMES)
PARAMETER = re.compile(
    r"^-- \$(?P<number>\d+) (?P<name>[a-z_]+) (?P<type>[a-z][a-z0-9 ]*(?:\[\])?): (?P<meaning>\S.*)$"
)


def split(text: str) -> tuple[list[str], str]:
    """The comment lines at the top, and everything after them."""
    lines = text.splitlines()
    length = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return lines[:length], "\n".join(lines[length:])


def code(body: str) -> str:
    """A body without its comments and literals, in which nothing counts."""
    return re.sub(r"--[^\n]*|'(?:[^']|'')*'", "", body)


@EVERY_QUERY
def test_every_query_says_first_what_it_is_for(name: str) -> None:
    header, _ = split(query(name))

    assert header, f"{name}.sql has no header"
    assert re.match(r"^-- [A-Z]", header[0])
    assert not PARAMETER.match(header[0])
    before = [line for line in header if not line.startswith("-- $")]
    assert header[: len(before)] == before, "the purpose comes before the parameters"
    assert before[-1].endswith(".")


@EVERY_QUERY
def test_every_parameter_is_declared_in_order_and_used(name: str) -> None:
    header, body = split(query(name))
    lines = [line for line in header if line.startswith("-- $")]
    declared = [PARAMETER.match(line) for line in lines]

    assert all(declared), (
        f"not like '-- $1 name type: meaning': {lines[declared.index(None)] if None in declared else ''}"
    )
    numbers = [int(match["number"]) for match in declared if match]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {int(number) for number in re.findall(r"\$(\d+)", code(body))} == set(numbers)
    names = [match["name"] for match in declared if match]
    assert len(names) == len(set(names))


@EVERY_QUERY
def test_every_query_is_one_statement(name: str) -> None:
    _, body = split(query(name))
    statements = [statement for statement in code(body).split(";") if statement.strip()]

    assert len(statements) == 1


def test_every_query_is_used() -> None:
    root = QUERIES.parents[1]
    folders = ("engine", "http", "holdfast", "persistence", "loadtest")
    text = "\n".join(path.read_text() for folder in folders for path in (root / folder).glob("**/*.py"))
    # A family of queries may be named by its first words: query(f"digest_{table}").
    families = tuple(re.findall(r'query\(f"([a-z_]+_)\{', text))

    assert [name for name in NAMES if f'"{name}"' not in text and not name.startswith(families)] == []


def test_a_query_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        query("no_such_query")
