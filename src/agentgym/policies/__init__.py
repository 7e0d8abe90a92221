"""Policies: what decides, and how it learns."""
