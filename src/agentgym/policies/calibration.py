"""Turns the probability of a decision into a confidence that can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Calibration:
    """Slope and offset on the log-odds of a raw confidence."""

    slope: float = 1.0
    offset: float = 0.0

    def confidence(self, probability: float) -> float:
        """The calibrated confidence, 0 to 1."""
        return float(_sigmoid(self.slope * _logit(probability) + self.offset))

    def refitted(self, decisions: Sequence[tuple[float, bool]]) -> Calibration:
        """Platt scaling, a little damped, on what came of decisions.

        Args:
            decisions: Pairs of the confidence that this calibration gave and whether
                the decision was right.
        """
        if not decisions:
            return self
        raw = np.array([(_logit(c) - self.offset) / self.slope for c, _ in decisions])
        right = np.array([r for _, r in decisions], float)
        # Platt's targets keep the fit finite when everything is right.
        n1, n0 = right.sum(), (1 - right).sum()
        target = np.where(right > 0, (n1 + 1) / (n1 + 2), 1 / (n0 + 2))
        slope, offset = 1.0, 0.0
        for _ in range(50):
            p = _sigmoid(slope * raw + offset)
            w = p * (1 - p) + 1e-9
            g = np.array(
                [((p - target) * raw).sum() + 0.1 * (slope - 1), (p - target).sum()]
            )
            h = np.array(
                [
                    [(w * raw * raw).sum() + 0.1, (w * raw).sum()],
                    [(w * raw).sum(), w.sum()],
                ]
            )
            slope, offset = np.array([slope, offset]) - np.linalg.solve(h, g)
            slope = max(float(slope), 0.05)
        return Calibration(float(slope), float(offset))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def _logit(p: float) -> float:
    p = min(max(p, 1e-6), 1 - 1e-6)
    return float(np.log(p / (1 - p)))
