"""`holdfast event` on what `holdfast up` runs."""

import json
from collections.abc import Callable

from support.commands import Up, complete


def test_the_demo_event_of_a_running_up_is_found_by_its_data_directory(up: Callable[..., Up]) -> None:
    command = up()
    run = command.ready()

    shown = complete("event", "show", run["demo"]["event_id"], "--data-dir", str(command.data_dir), "--json")

    assert (shown.returncode, shown.stderr) == (0, "")
    report = json.loads(shown.stdout)
    assert report["organization_id"] == run["demo"]["organization_id"]
    assert (report["state"], report["counted_in"]) == ("live", "redis")
    assert sum(zone["free"] for zone in report["zones"]) == 950

    migrated = complete("migrate", "--data-dir", str(command.data_dir), "--json")
    assert (migrated.returncode, migrated.stdout) == (0, '{"applied":[]}\n')
