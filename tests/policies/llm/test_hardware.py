"""Which precision a machine computes in."""

from __future__ import annotations

import pytest
import torch

from agentgym.policies.llm.hardware import half_pays


def test_a_cpu_computes_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"avx512_bf16": True, "amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    assert not half_pays(torch.device("cpu"))


@pytest.mark.parametrize("supported", [True, False])
def test_a_gpu_computes_in_half_precision_where_it_can(
    monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: supported)
    assert half_pays(torch.device("cuda")) is supported
