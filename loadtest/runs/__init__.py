"""`holdfast loadtest`: a scenario on a stack of its own, the audit after it, and an honest report."""
