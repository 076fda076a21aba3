"""Buyers at a steady rate while Redis goes away and comes back.

What goes away is for `holdfast loadtest redis_outage` to say, which kills its own Redis in the middle; against another
deployment, take Redis away by hand.
"""

from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd
from holdfast.loadtest.scenarios.flash_sale import finish


def buy_any(buyer: Buyer) -> None:
    """Hold any seats, named by oneself or chosen by Holdfast, and perhaps pay for them."""
    calls, chance = buyer.calls, buyer.chance
    seat, zone = chance.choice(buyer.shop.seats), chance.choice(buyer.shop.seated_zones)
    wish = calls.reserve(seat) if buyer.maybe(0.6) else calls.hold_best(zone, chance.randint(1, 3))
    held = buyer.hold(wish)
    if held:
        finish(buyer, held)


class RedisOutage(Crowd):
    """Buyers who do not know that anything is wrong."""

    turnover_s = (0.5, 1.5)

    def visit(self, buyer: Buyer) -> None:
        buy_any(buyer)
