"""Expiry pressure: everybody holds and nobody comes back, so that all that is free again has expired."""

from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd


class HoldAndAbandon(Crowd):
    """People who close the window."""

    turnover_s = (0.5, 1.5)

    def visit(self, buyer: Buyer) -> None:
        zone = buyer.chance.choice(buyer.shop.seated_zones)
        buyer.hold(buyer.calls.hold_best(zone, buyer.chance.randint(1, 4)))
