"""What several test modules share; on the path by `pythonpath` in pyproject.toml."""
