# Every verb first makes sure that .venv holds the package and its tools; PyPI is all it needs.

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/ready

.PHONY: up test lint fmt type bench loadtest

up: $(READY)
	$(VENV)/bin/holdfast up

test: $(READY)
	$(VENV)/bin/pytest

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

fmt: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

type: $(READY)
	$(VENV)/bin/mypy

bench: $(READY)
	$(VENV)/bin/holdfast bench script

loadtest: $(READY)
	$(VENV)/bin/holdfast loadtest flash_sale

# The pip that comes with older Pythons does not know dependency groups.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --upgrade "pip>=25.1"
	$(VENV)/bin/pip install --quiet --editable '.[loadtest]' --group dev
	touch $(READY)
