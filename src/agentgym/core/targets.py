"""Targets that figures are compared with."""

from __future__ import annotations


class AtMost(float):
    """A target that a figure should not exceed; a plain number is one to reach."""
