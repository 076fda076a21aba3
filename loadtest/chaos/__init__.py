"""Chaos runs: traffic through real front ends, a fault in the middle, and a check of all that buyers were told."""
