"""The scenarios by name: what each asks, and how large a run is unless told otherwise."""

from pathlib import Path

import msgspec

from holdfast.loadtest.thresholds import Threshold

SCENARIOS_DIR = Path(__file__).resolve().parent.parent / "scenarios"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A locust file and the size of a run that fits two cores and two minutes.

    With `arrivals_per_s` buyers come at that rate, else there are so many `users` at any time. `fault` is what breaks
    after a third of the time; `by_postgres` lets Postgres serve from the start.
    """

    summary: str
    users: int = 0
    arrivals_per_s: float = 0.0
    duration_s: int = 60
    seats: int = 5_000
    places: int = 100
    hold_minutes: int = 10
    fault: str = ""
    by_postgres: bool = False


SCENARIOS: dict[str, Scenario] = {
    "flash_sale": Scenario(
        summary="everybody wants the best seats at once, picks others when they are gone, and some pay", users=2_000
    ),
    "hot_seat": Scenario(summary="thousands want one and the same seat", users=1_000, duration_s=30, seats=100),
    "best_available": Scenario(
        summary="groups let Holdfast choose the best seats beside each other", users=300, duration_s=45, seats=20_000
    ),
    "general_admission": Scenario(summary="places without numbers", users=300, duration_s=45, seats=100, places=20_000),
    "browse_and_buy": Scenario(
        summary="read, watch the map live, hold, extend, pay or leave", users=400, duration_s=60, seats=5_000
    ),
    "hold_and_abandon": Scenario(
        summary="everybody holds for a minute and nobody comes back",
        users=100,
        duration_s=90,
        seats=6_000,
        hold_minutes=1,
    ),
    "redis_outage": Scenario(
        summary="Redis is killed in the middle and comes back; buyers come at a steady rate",
        arrivals_per_s=120,
        duration_s=60,
        seats=30_000,
        fault="kill-redis",
    ),
    "fallback_only": Scenario(
        summary="Postgres alone serves", users=300, duration_s=45, seats=20_000, by_postgres=True
    ),
}


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `users` are doors where buyers come at a rate. `think` multiplies the pauses of buyers."""

    name: str
    scenario: Scenario
    processes: int = 1
    think: float = 1.0
    tokens: int = 20_000
    fail_over: tuple[Threshold, ...] = ()

    @property
    def locust_file(self) -> Path:
        return SCENARIOS_DIR / f"{self.name}.py"

    @property
    def locust_users(self) -> int:
        """How many users locust is to run: one door for every process where buyers come at a rate."""
        return self.processes if self.scenario.arrivals_per_s else self.scenario.users
