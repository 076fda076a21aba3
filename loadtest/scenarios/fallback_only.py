"""A sale while Postgres alone serves: `holdfast loadtest fallback_only` changes the mode before the first buyer comes.

Against another deployment, say `holdfast mode db` first.
"""

from holdfast.loadtest.crowd.buyer import Buyer
from holdfast.loadtest.crowd.crowd import Crowd
from holdfast.loadtest.scenarios.redis_outage import buy_any


class FallbackOnly(Crowd):
    """Buyers who do not know who serves them."""

    turnover_s = (0.5, 1.5)

    def visit(self, buyer: Buyer) -> None:
        buy_any(buyer)
