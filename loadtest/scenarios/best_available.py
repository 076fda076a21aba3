"""Groups that let Holdfast choose: the best seats beside each other that are left."""

from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd
from holdfast.loadtest.scenarios.flash_sale import finish

GROUPS, HOW_OFTEN = (1, 2, 3, 4, 5, 6, 8), (10, 40, 12, 22, 6, 7, 3)


class BestAvailable(Crowd):
    """Groups of friends."""

    turnover_s = (0.5, 1.5)

    def visit(self, buyer: Buyer) -> None:
        zone = buyer.chance.choice(buyer.shop.seated_zones)
        held = buyer.hold(buyer.calls.hold_best(zone, buyer.chance.choices(GROUPS, HOW_OFTEN)[0]))
        if held:
            finish(buyer, held)
