"""How buyers come: as many at a time as there are locust users, or so many per second whatever happens to them.

A scenario is a locust file with a subclass of `Crowd` whose `visit` says what one buyer does.
"""

import itertools
import logging
import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import gevent
import msgspec
from gevent.pool import Group
from geventhttpclient.useragent import UserAgent
from locust import events, task
from locust.argument_parser import LocustArgumentParser
from locust.contrib.fasthttp import FastHttpUser
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import MasterRunner, WorkerRunner

from holdfast.engine.settings import SettingsError
from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.journal import Journal
from holdfast.loadtest.crowd.shop import Shop
from holdfast.loadtest.crowd.tokens import CannotBegin, Tokens, make_tokens, read_tokens
from holdfast.loadtest.thresholds import PERCENTILES, exceeded, parse_thresholds

# A person does not wait longer than that for a page.
TIMEOUT_S = 20.0
# More visits than that at a time are not begun: the process could not look after them.
VISITS_MAX = 5_000
# Numbers of buyers are told apart by process.
NUMBERS = 10_000_000


class Sale(msgspec.Struct, frozen=True):
    """What all buyers of this process share."""

    shop: Shop
    tokens: Tokens
    journal: Journal
    numbers: "itertools.count[int]"
    think: float
    arrivals_per_s: float


_log = logging.getLogger(__name__)
_sales: dict[Environment, Sale] = {}


class Crowd(FastHttpUser):
    """Buyers. A locust user is one buyer after the other or, with --arrivals-per-s, a door by which they come."""

    abstract = True
    network_timeout = connection_timeout = TIMEOUT_S
    # Through a door come many at a time.
    concurrency = VISITS_MAX

    # How long after one buyer the next comes, in seconds.
    turnover_s = (1.0, 3.0)

    def visit(self, buyer: Buyer) -> None:
        """What one buyer does."""
        raise NotImplementedError

    def on_start(self) -> None:
        self.sale = _sales[self.environment]
        self._visits = Group()
        self.sale.journal.users += 1

    def on_stop(self) -> None:
        self.sale.journal.users -= 1
        self._visits.kill(block=False)

    @task
    def come(self) -> None:
        """Let buyers come until the run ends."""
        if self.sale.arrivals_per_s:
            options: Any = self.environment.parsed_options
            self._admit(self.sale.arrivals_per_s / max(1, options.num_users or 1))
        buyer = self._buyer()
        self.visit(buyer)
        buyer.pause(*self.turnover_s)

    def _admit(self, per_s: float) -> None:
        """Begin a visit at every moment that the rate says, however many are under way."""
        began = time.monotonic()
        for number in itertools.count():
            due = began + number / per_s
            gevent.sleep(max(0.0, due - time.monotonic()))
            admitted = len(self._visits) < VISITS_MAX
            self.sale.journal.arrive(time.monotonic() - due, admitted=admitted)
            if admitted:
                self._visits.spawn(self.visit, self._buyer())

    def _buyer(self) -> Buyer:
        sale = self.sale
        tokens = (sale.tokens.next(), sale.tokens.service)
        return Buyer(next(sale.numbers), self.client, sale.shop, tokens, journal=sale.journal, think=sale.think)


def declare_options(parser: LocustArgumentParser) -> None:
    """What a scenario is told besides locust's own options. A master sends them to its workers, so all are plain."""
    group = parser.add_argument_group("Holdfast", "what to buy, as whom, and how")
    group.add_argument("--event", env_var="HOLDFAST_LOADTEST_EVENT", help="the event that is on sale")
    group.add_argument(
        "--token-file", env_var="HOLDFAST_LOADTEST_TOKENS", help="tokens of customers and one of a service"
    )
    group.add_argument(
        "--organization", env_var="HOLDFAST_LOADTEST_ORGANIZATION", help="to make tokens for, without a file"
    )
    group.add_argument(
        "--arrivals-per-s", type=float, default=0.0, env_var="HOLDFAST_LOADTEST_ARRIVALS", help="open load: a rate"
    )
    group.add_argument(
        "--think", type=float, default=1.0, env_var="HOLDFAST_LOADTEST_THINK", help="multiplies every pause"
    )
    group.add_argument("--history", env_var="HOLDFAST_LOADTEST_HISTORY", help="write every call there")
    group.add_argument("--fail-over", type=_checked, help="fail beyond these, such as p99=250,errors=1")


def open_sale(environment: Environment, **_: object) -> None:
    """Learn what everybody knows of the event. Ends the test with a sentence where that cannot be."""
    if isinstance(environment.runner, MasterRunner):
        return
    options: Any = environment.parsed_options
    worker: int = getattr(environment.runner, "worker_index", 0)
    try:
        if not options.event or not environment.host:
            raise CannotBegin("Say what to buy and where: --event and --host.")
        if options.token_file:
            tokens = read_tokens(Path(options.token_file), worker, max(1, options.processes or 1))
        elif options.organization:
            tokens = make_tokens(os.environ, UUID(options.organization))
        else:
            raise CannotBegin("Give a --token-file, or an --organization to make tokens for.")
        shop = _visit_shop(environment.host, UUID(options.event), tokens.service)
    except (CannotBegin, SettingsError, OSError, ValueError, KeyError) as error:
        environment.process_exit_code = 1
        raise StopTest(f"The sale cannot begin: {error}") from error
    began_at = float(os.environ.get("HOLDFAST_LOADTEST_BEGAN_AT", "0"))
    history = Path(options.history) if options.history else None
    if history:
        history.mkdir(parents=True, exist_ok=True)
    journal = Journal(history, began_at)
    numbers = itertools.count(worker * NUMBERS)
    _sales[environment] = Sale(shop, tokens, journal, numbers, options.think, options.arrivals_per_s)
    gevent.spawn(journal.run)


def close_sale(environment: Environment, **_: object) -> None:
    """Write down what is left."""
    if environment in _sales:
        _sales[environment].journal.flush()


def judge(environment: Environment, **_: object) -> None:
    """Fail the run if it was worse than it may be."""
    options: Any = environment.parsed_options
    thresholds = parse_thresholds(options.fail_over) if options and options.fail_over else ()
    total = environment.stats.total
    if not thresholds or isinstance(environment.runner, WorkerRunner):
        return
    # What locust counts: the answers that were put off are among the errors here.
    figures = {"errors": 100 * total.fail_ratio}
    if total.num_requests:
        figures |= {name: total.get_response_time_percentile(share) for name, share in PERCENTILES.items()}
    for text in exceeded(thresholds, figures):
        _log.error(text)
        environment.process_exit_code = 1


def _checked(text: str) -> str:
    parse_thresholds(text)
    return text


def _visit_shop(host: str, event_id: UUID, token: str) -> Shop:
    agent = UserAgent(network_timeout=TIMEOUT_S, connection_timeout=TIMEOUT_S)
    headers = {"Authorization": f"Bearer {token}"}
    layout = agent.urlopen(f"{host}/api/events/{event_id}/layout", headers=headers).content
    return Shop.of(event_id, msgspec.json.decode(layout)["data"]["zones"])


events.init_command_line_parser.add_listener(declare_options)
events.test_start.add_listener(open_sale)
events.test_stop.add_listener(close_sale)
events.quitting.add_listener(judge)
