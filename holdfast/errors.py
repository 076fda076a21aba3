"""What the command line tells an operator instead of a traceback."""


class OperatorError(Exception):
    """Something expected went wrong; the text is one sentence that says what."""
