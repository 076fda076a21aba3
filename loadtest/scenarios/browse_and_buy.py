"""An ordinary day: people read about the event, watch the map live, hold, hesitate, and pay or leave."""

from holdfast.loadtest.chaos.history import Operation
from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd
from holdfast.loadtest.scenarios.flash_sale import pick

WATCHING, HOLDING, EXTENDING, PAYING, GIVING_BACK = 0.5, 0.7, 0.3, 0.6, 0.5
AT_THE_TILL = {Operation.COMPLETE: 0.9, Operation.FAIL: 0.04, Operation.CANCEL: 0.06}


class BrowseAndBuy(Crowd):
    """Visitors, of whom some become buyers."""

    def visit(self, buyer: Buyer) -> None:
        buyer.ask(buyer.calls.look())
        buyer.pause(0.5, 2.0)
        if buyer.maybe(WATCHING):
            with buyer.watching():
                self.shop_around(buyer)
        else:
            self.shop_around(buyer)

    def shop_around(self, buyer: Buyer) -> None:
        """Look at the seats, and buy some, or not."""
        free = buyer.free_seats()
        buyer.pause(1.0, 4.0)
        if not free or not buyer.maybe(HOLDING):
            buyer.ask(buyer.calls.look("occupancy"))
            return
        held = buyer.hold(buyer.calls.hold_seats(pick(buyer, free)))
        if not held:
            return
        buyer.pause(1.0, 4.0)
        if buyer.maybe(EXTENDING):
            buyer.ask(buyer.calls.extend(held))
            buyer.pause(0.5, 2.0)
        if buyer.maybe(PAYING):
            buyer.check_out([held], AT_THE_TILL)
        elif buyer.maybe(GIVING_BACK):
            buyer.ask(buyer.calls.release(held))
