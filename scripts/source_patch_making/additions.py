"""The behaviour patches as lines to add: what, where and in which releases.

Every class attribute stands in the class and not in ``__init__``, because Glm4MoeLite inherits the
methods and not the constructor. A place is before ``__init__``, with a blank line after.
"""

from __future__ import annotations

from dataclasses import dataclass

from sglang_eagle3_probe.host.versions import Releases

from .anchors import Anchor, calls_method, defines, names_empty_list, sets_attribute, unpacks_into

_MODEL = "sglang/srt/models/deepseek_v2.py"
_GRAPHS = "sglang/srt/model_executor/cuda_graph_runner.py"
_SETTER = "DeepseekV2ForCausalLM.set_eagle3_layers_to_capture"


@dataclass(frozen=True)
class Addition:
    """Lines that one patch adds to one place of a file.

    Args:
        text: as it stands at the left margin.
        spaced: a blank line follows.
    """

    file: str
    at: Anchor
    releases: Releases
    text: str
    spaced: bool = False


@dataclass(frozen=True)
class Patch:
    """One file of a series."""

    name: str
    title: str
    additions: tuple[Addition, ...]


_OLD = Releases("0.5.9", "0.5.13.post1")
"""DeepSeek's loop adds the residual to what it captures, and before layer 0 there is none."""

_LISTED = """\
# capture_order: aux hidden states arrive ascending; this is where each one of the
# list arrives.
listed = list(self.model.layers_to_capture)
arriving = sorted(listed)
self.aux_hidden_state_places = (
    None if listed == arriving else [arriving.index(h) for h in listed]
)
"""

SERIES: tuple[Patch, ...] = (
    Patch(
        "0001-embedding-capture",
        "A list of aux layer ids that holds -1 is output ids; the embedding output is captured",
        (
            Addition(
                _MODEL,
                Anchor(_SETTER, "end"),
                Releases("0.5.13"),
                """\
# embedding_capture: -1 is the embedding output, so a list that holds it is output
# ids as a whole; the output of layer o is what enters layer o + 1.
if layer_ids is not None and -1 in layer_ids:
    self.model.layers_to_capture = [o + 1 for o in layer_ids]
""",
            ),
            Addition(
                _MODEL,
                Anchor(_SETTER, "end"),
                _OLD,
                """\
# embedding_capture: before layer 0 there is no residual to add, so forward captures
# the embedding output ahead of its loop.
self.model.captures_embedding_output = 0 in self.model.layers_to_capture
self.model.layers_to_capture = [h for h in self.model.layers_to_capture if h != 0]
""",
            ),
            Addition(
                _MODEL,
                Anchor("DeepseekV2Model", "before", defines("__init__")),
                _OLD,
                "captures_embedding_output = False\n",
                spaced=True,
            ),
            Addition(
                _MODEL,
                Anchor("DeepseekV2Model.forward", "after", names_empty_list("aux_hidden_states")),
                _OLD,
                """\
if self.captures_embedding_output and residual is None:
    # embedding_capture: a copy, since layer 0 takes this tensor as its residual
    # and overwrites it.
    aux_hidden_states.append(hidden_states.clone())
""",
            ),
        ),
    ),
    Patch(
        "0002-capture-order",
        "The concatenation of aux hidden states follows the order of the list",
        (
            Addition(
                _MODEL,
                Anchor("DeepseekV2ForCausalLM", "before", defines("__init__")),
                Releases(),
                "aux_hidden_state_places = None\n",
                spaced=True,
            ),
            Addition(
                _MODEL,
                Anchor("DeepseekV2ForCausalLM.forward", "after", unpacks_into("aux_hidden_states")),
                Releases("0.5.9", "0.5.16"),
                """\
# capture_order: into the order of the list.
places = self.aux_hidden_state_places
if places is not None:
    aux_hidden_states = [aux_hidden_states[i] for i in places]
""",
            ),
            Addition(
                _MODEL,
                Anchor("DeepseekV2ForCausalLM.forward", "after", unpacks_into("aux_hidden_states")),
                Releases("0.5.17"),
                """\
# capture_order: into the order of the list.
places = self.aux_hidden_state_places
if places is not None:
    arrived = aux_hidden_states.chunk(len(places), dim=-1)
    aux_hidden_states = torch.cat([arrived[i] for i in places], dim=-1)
""",
            ),
            Addition(
                _MODEL,
                Anchor(_SETTER, "before", sets_attribute("captures_embedding_output")),
                _OLD,
                _LISTED,
            ),
            Addition(_MODEL, Anchor(_SETTER, "end"), Releases("0.5.14"), _LISTED),
        ),
    ),
    Patch(
        "0003-verify-graph-ids",
        "Verify graphs are captured with the ids of the draft's config, not the default ones",
        (
            Addition(
                _GRAPHS,
                Anchor(
                    "CudaGraphRunner.__init__",
                    "after",
                    calls_method("set_eagle3_layers_to_capture"),
                ),
                Releases("0.5.9", "0.5.10.post1"),
                """\
# verify_graph_ids: SGLang sets them too, but only once these graphs are captured.
configured = model_runner.eagle_aux_hidden_state_layer_ids
if configured is not None:
    model_runner.model.set_eagle3_layers_to_capture(configured)
""",
            ),
        ),
    ),
)
"""In the order in which they are applied; one with nothing for a release is not written for it."""
