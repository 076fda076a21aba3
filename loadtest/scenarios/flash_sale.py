"""On-sale: everybody wants the best seats at once, picks others when they are gone, and some of them pay."""

from collections.abc import Sequence

from holdfast.loadtest.chaos.history import Operation
from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd

TRIES = 6
# How far from the front people look, as a share of the seats that are free.
REACH = 0.15
# What becomes of a hold: to the till, given back, or forgotten; and at the till.
TO_THE_TILL, GIVEN_BACK = 0.80, 0.08
AT_THE_TILL = {Operation.COMPLETE: 0.88, Operation.FAIL: 0.06, Operation.CANCEL: 0.06}
PARTIES, HOW_OFTEN = (1, 2, 3, 4), (25, 50, 10, 15)


def pick(buyer: Buyer, free: Sequence[str]) -> Sequence[str]:
    """Seats beside each other as near to the front as this buyer dares, or the last there are."""
    party = buyer.chance.choices(PARTIES, HOW_OFTEN)[0]
    at = min(int(buyer.chance.expovariate(1 / (REACH * len(free)))), max(0, len(free) - party))
    return free[at : at + party]


def buy(buyer: Buyer) -> None:
    """Pick seats until some are held or patience ends, and perhaps pay for them."""
    held = None
    free = buyer.free_seats()
    for _ in range(TRIES):
        if not free:
            return
        buyer.pause(0.5, 2.5)
        seats = pick(buyer, free)
        wish = buyer.calls.reserve(seats[0]) if len(seats) == 1 else buyer.calls.hold_seats(seats)
        held = buyer.hold(wish)
        if held:
            break
        # Gone. Some look at the map again, others try what they still see.
        free = buyer.free_seats() if buyer.maybe(0.7) else [seat for seat in free if seat not in seats]
    if held:
        finish(buyer, held)


def finish(buyer: Buyer, held: str) -> None:
    """Go to the till, or do not."""
    buyer.pause(1.0, 5.0)
    if buyer.maybe(TO_THE_TILL):
        buyer.check_out([held], AT_THE_TILL)
    elif buyer.maybe(GIVEN_BACK / (1 - TO_THE_TILL)):
        buyer.ask(buyer.calls.release(held))


class FlashSale(Crowd):
    """Buyers at the opening of a sale."""

    turnover_s = (2.0, 6.0)

    def visit(self, buyer: Buyer) -> None:
        buy(buyer)
