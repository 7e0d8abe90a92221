"""Scenarios: the worlds in which agents are trained and judged."""
