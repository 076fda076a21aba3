"""`holdfast loadtest` as load testers meet it."""

import json
import signal
from pathlib import Path

import pytest

from holdfast.loadtest.runs.plans import SCENARIOS
from support.commands import HOLDFAST, Command, complete, wait_until


def test_a_run_by_two_processes_reports_and_fails_over_its_limits(tmp_path: Path) -> None:
    arguments = ["hot_seat", "--duration", "2", "--users", "10", "--seats", "20", "--tokens", "200", "--processes", "2"]
    limits = ["--fail-over", "p99=0.01,errors=0"]
    done = complete("loadtest", *arguments, *limits, "--out", str(tmp_path), "--keep-history", "--json", timeout_s=90)

    assert done.returncode == 1, done.stderr
    assert "p99 is" in done.stderr
    result = json.loads(done.stdout)
    assert result["audit"]["violations"] == []
    assert result["audit"]["acknowledged"] > 0
    assert result["figures"]["generator"]["processes"] == 2
    assert len(list((tmp_path / "history").glob("calls-*.jsonl"))) == 2
    (page,) = tmp_path.glob("*.html")
    shown = page.read_text()
    assert "Over the threshold." in shown
    # It needs nothing from elsewhere, and gives nothing away.
    assert [word for word in ("http:", "https:", "<script", "<link", "url(", str(tmp_path)) if word in shown] == []


def test_a_run_that_is_interrupted_is_audited_and_leaves_nothing_running(tmp_path: Path) -> None:
    arguments = ["general_admission", "--users", "10", "--tokens", "100", "--duration", "60", "--out", str(tmp_path)]
    command = Command([*HOLDFAST, "loadtest", *arguments], tmp_path, {})
    try:
        wait_until(lambda: " holds" in command.stderr, "somebody holds a place")
        command.send(signal.SIGINT)
        assert command.wait() == 130, command.stderr
    finally:
        command.kill()

    assert "stopped early" in command.stdout
    assert "No violations" in command.stdout
    assert len(list(tmp_path.glob("*.html"))) == 1


def test_the_help_names_every_scenario() -> None:
    shown = complete("loadtest", "--help").stdout
    assert [name for name in SCENARIOS if name not in shown] == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["hot_seat", "--users", "0"],
        ["hot_seat", "--users", "1", "--arrivals-per-s", "1"],
        ["hot_seat", "--fail-over", "p98=1"],
        ["hot_seat", "--fail-over", "p99=fast"],
    ],
)
def test_what_cannot_be_run_is_a_wrong_use(arguments: list[str]) -> None:
    assert complete("loadtest", *arguments).returncode == 2
