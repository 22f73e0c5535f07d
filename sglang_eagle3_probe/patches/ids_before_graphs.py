"""The configured layer ids reach the setter before CUDA graphs are captured.

Up to 0.5.10.post1 ``CudaGraphRunner.__init__`` and ``ModelRunner._dummy_run`` call
``set_eagle3_layers_to_capture()`` without a list, and ``ModelRunner`` passes the configured ids
only after the graphs exist. Prefill then feeds the draft the configured boundaries and verification
the default ones, [2, N//2, N-3], without a word. The ids are known all along, as
``eagle_aux_hidden_state_layer_ids`` of the target's runner.
"""

from __future__ import annotations

from typing import Any

from ..host.call import Call
from ..host.session import Session
from ..host.wrapping import Proceed

NAME = "ids_before_graphs"


class RunnerIds:
    """Around ``ModelRunner.load_model``: picks the ids up from the target's runner."""

    name = NAME

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, proceed: Proceed, call: Call) -> Any:
        result = proceed(call)
        runner = call.instance
        if not runner.is_draft_worker and runner.eagle_use_aux_hidden_state:
            ids = runner.eagle_aux_hidden_state_layer_ids
            self._session.runner_ids = None if ids is None else list(ids)
        return result


class SetterIds:
    """Around ``set_eagle3_layers_to_capture``: a call without a list gets the runner's."""

    name = NAME

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, proceed: Proceed, call: Call) -> Any:
        session = self._session
        ids = session.runner_ids
        if ids is not None and call.get("layer_ids") is None:
            call.replace("layer_ids", list(ids))
            if NAME not in session.early_patches:
                session.early_patches.append(NAME)
                session.say(
                    "SGLang %s captures CUDA graphs with its default layer ids and applies the "
                    "draft config's %s afterwards; patched: the graphs get these too",
                    session.release,
                    ids,
                )
        return proceed(call)
