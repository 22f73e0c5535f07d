"""Which rotary settings count is what the installed Transformers makes of a config."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sglang_eagle3_probe.checkpoint.rope import rope_of

transformers = pytest.importorskip("transformers", minversion="5")
SCALING = {"rope_type": "linear", "factor": 4.0}
PARAMETERS = {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0}
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"rope_theta": 9.0},
    {"rope_scaling": SCALING},
    {"rope_scaling": SCALING, "rope_theta": 9.0},
    {"rope_scaling": PARAMETERS, "rope_theta": 9.0},
    {"rope_parameters": PARAMETERS},
    {"rope_parameters": PARAMETERS, "rope_theta": 9.0},
    {"rope_parameters": PARAMETERS, "rope_scaling": None},
    {"rope_parameters": PARAMETERS, "rope_scaling": {}},
    {"rope_parameters": PARAMETERS, "rope_scaling": SCALING},
    {"rope_parameters": PARAMETERS, "rope_scaling": SCALING, "rope_theta": 9.0},
    {"rope_parameters": {"rope_theta": 5.0}, "rope_scaling": PARAMETERS},
)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_theta_and_scaling(config: dict[str, Any]) -> None:
    real = transformers.LlamaConfig(**copy.deepcopy(config)).rope_parameters
    ours = rope_of(config)
    assert ours.theta(reads_new=True) == real["rope_theta"]
    assert ours.kind == real["rope_type"]
    assert ours.scaling.get("factor") == real.get("factor")
