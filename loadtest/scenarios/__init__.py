"""Load-test scenarios, one locust file each: `locust -f loadtest/scenarios/flash_sale.py --host URL --event ID`."""
