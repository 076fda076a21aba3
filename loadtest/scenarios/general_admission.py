"""Places without numbers: a counter that everybody wants a share of."""

from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd
from holdfast.loadtest.scenarios.flash_sale import finish


class GeneralAdmission(Crowd):
    """Buyers of one to six places."""

    turnover_s = (0.5, 1.5)

    def visit(self, buyer: Buyer) -> None:
        zone = buyer.chance.choice(buyer.shop.open_zones)
        held = buyer.hold(buyer.calls.hold_places(zone, buyer.chance.randint(1, 6)))
        if held:
            finish(buyer, held)
