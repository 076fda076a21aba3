"""The commands of the README, as somebody pastes them."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.commands import Up

README = Path(__file__).parents[2] / "README.md"


def commands_under(heading: str) -> str:
    """The first block of commands under a heading of the README."""
    found = re.search(rf"^### {re.escape(heading)}$.*?^```\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"the README has no commands under {heading!r}"
    return found[1]


def documents(text: str) -> Iterator[Any]:
    """JSON documents that were printed one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while rest := text[at:].lstrip():
        document, length = decoder.raw_decode(rest)
        at = len(text) - len(rest) + length
        yield document


def test_the_quick_start_reserves_a_seat_and_buys_it(up: Callable[..., Up]) -> None:
    command = up()
    run = command.ready()
    pasted = commands_under("Reserve a seat, and buy it").replace("http://127.0.0.1:8080", run["http_url"])

    shell = subprocess.run(
        ["bash", "-e"],
        input=pasted,
        capture_output=True,
        text=True,
        cwd=command.data_dir.parent,
        check=True,
        timeout=30,
    )

    assert shell.stderr == ""
    reserved, lost, taken, own, started, paid, sold = documents(shell.stdout)
    seat = reserved["data"]["seat_id"]
    assert (reserved["data"]["status"], reserved["data"]["durability"]) == ("held", "postgres")
    assert (lost["status"], lost["error"]) == (409, "seat_held_by_another_user")
    assert (taken["data"]["seat_id"], taken["data"]["status"]) == (seat, "held")
    assert [hold["hold_id"] for hold in own["data"]["holds"]] == [reserved["data"]["hold_id"]]
    assert (started["data"]["status"], [each["seat_id"] for each in started["data"]["seats"]]) == ("open", [seat])
    assert (paid["data"]["status"], [each["seat_id"] for each in paid["data"]["tickets"]]) == ("completed", [seat])
    assert (sold["data"]["seat_id"], sold["data"]["status"]) == (seat, "sold")
