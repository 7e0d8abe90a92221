"""The parts of an agent that a scenario declares trainable or frozen."""

from __future__ import annotations

COMPONENTS = (
    "tool_selection",
    "parameter_selection",
    "tool_execution",
    "output_generation",
)
