"""The planner: tool and parameter heads over a frozen sentence encoder, no torch."""
