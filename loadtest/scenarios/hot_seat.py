"""Thousands want one and the same seat; whoever has it gives it back a moment later."""

from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd


class HotSeat(Crowd):
    """Buyers who know which seat they want."""

    turnover_s = (0.2, 1.0)

    def visit(self, buyer: Buyer) -> None:
        held = buyer.hold(buyer.calls.reserve(buyer.shop.seats[0]))
        if held:
            buyer.pause(0.2, 1.0)
            buyer.ask(buyer.calls.release(held))
