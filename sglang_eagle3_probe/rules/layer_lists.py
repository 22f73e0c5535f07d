"""Words and fixes that several layer-id rules share."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules.evidence import RankEvidence

CONFIG_KEY = "eagle_config.eagle_aux_hidden_state_layer_ids"
VARIABLE = "SGLANG_EAGLE3_PROBE_LAYER_IDS"


def serve_as(output_ids: Sequence[int], rank: RankEvidence) -> str:
    """How to have these output ids served, in this order: the config edit and the variable."""
    listed = list(output_ids)
    text = ",".join(str(o) for o in listed)
    # A list that holds -1 is read as output ids as a whole; any other needs its unit said, since
    # the target's class may read it as boundaries.
    unit = "" if -1 in listed else f" {VARIABLE}_UNIT=output_id"
    also = f" (together with{unit})" if unit else ""
    fix = (
        f'in the draft\'s config.json set "eagle_config": '
        f'{{"eagle_aux_hidden_state_layer_ids": {listed}}}{also}; or leave the file alone and '
        f"start the server with {VARIABLE}={text}{unit}"
    )
    missing = [
        name
        for name, needed in (
            ("embedding_capture", -1 in listed),
            ("capture_order", listed != sorted(listed)),
        )
        if needed and rank.header is not None and name not in rank.header.patches
    ]
    if missing:
        fix += f"; also switch on {' and '.join(missing)} in SGLANG_EAGLE3_PROBE_PATCHES"
    return fix


def default_boundaries(num_layers: int) -> list[int]:
    """SGLang's default, in boundaries h: what most trainers use too."""
    return [2, num_layers // 2, num_layers - 3]


def as_boundaries(output_ids: Sequence[int]) -> list[int]:
    return [o + 1 for o in output_ids]
