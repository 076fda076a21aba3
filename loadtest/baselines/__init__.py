"""Other ways to hold a seat, to measure Holdfast against: small, plain, and with the same checks before the hold."""
