"""Fakes with behaviour and contract suites, part of the product: a new driver is tested by being listed."""
