"""What each name of a difference means, and what to do. Stable keys: they are in ``--json``."""

from __future__ import annotations

_CAPTURE_AGAIN = "Upgrade SGLang to a release that captures this class rightly, and capture again."

TITLES: dict[str, str] = {
    "row_shift": "the saved rows are shifted against their ids",
    "slot_count": "another number of aux hidden states was trained",
    "permuted": "the slots are in another order than in training",
    "one_late": "every slot is served one boundary later than trained",
    "one_early": "every slot is served one boundary earlier than trained",
    "other_slot": "a slot holds what another slot should",
    "other_boundary_trained": "a slot was trained on another boundary",
    "other_boundary_served": "a served slot is not the boundary that it is named by",
    "embedding_trained": "a slot was trained on the embedding output, another boundary is served",
    "embedding_served": "a served slot is the embedding output",
    "last_state_trained": "a slot was trained on the last state",
    "last_state_served": "a served slot is the last state",
    "normed_trained": "a slot was trained on states after a norm, served ones are before it",
    "normed_served": "a served slot is after a norm: the next layer's input, the residual is lost",
    "scaled": "a slot differs by one factor",
    "turned": "a slot is in another basis",
    "missing_residual": "a slot lacks the residual: it is one layer's own output",
    "partial_sum_served": "a served slot looks like one rank's part of the sum",
    "partial_sum_trained": "a trained slot looks like one rank's part of the sum",
    "overwritten": "a slot went on into the next layer: its tensor was overwritten",
    "noise": "the same states in another precision",
    "empty_served": "a served slot holds nothing",
    "empty_trained": "a trained slot holds nothing",
    "moved_rows": "some served rows are those of other tokens",
    "undecided": "a slot differs and the numbers do not say why",
}

MEANINGS: dict[str, str] = {
    "row_shift": "The trainer's file pairs each token with the state of another one. A draft "
    "trained so expects that; a server pairs row and token.",
    "slot_count": "fc has one block of columns a slot; with another number nothing it gets is what "
    "it was trained on.",
    "permuted": "fc multiplies each slot with the weights of another one. Acceptance falls to "
    "nearly nothing.",
    "one_late": "The list of layer ids was read in the wrong unit: boundaries were taken for "
    "output ids.",
    "one_early": "The list of layer ids was read in the wrong unit: output ids were taken for "
    "boundaries.",
    "other_slot": "fc multiplies this slot with the weights of another one.",
    "other_boundary_trained": "The draft gets the stream of another layer than in training.",
    "other_boundary_served": "The server hands on another state than the list of layers says.",
    "embedding_trained": "The draft expects the embedding output there: output id -1, boundary 0.",
    "embedding_served": "The draft gets the embedding output there and was trained on a layer's.",
    "last_state_trained": "The draft expects the target's last state there and gets an inner one.",
    "last_state_served": "The draft gets the target's last state there and was trained on an "
    "inner one; aux states may have been lost in a model wrapper.",
    "normed_trained": "Trained rows are a norm of the stream; SGLang always hands on the stream "
    "before a norm.",
    "normed_served": "The captured tensor was normed in place, or the residual was not added.",
    "scaled": "One side multiplies the stream by a number, as with an embedding scale or a "
    "weight-folding quantiser. The draft's norms may or may not take it out.",
    "turned": "All inner products between tokens agree and the coordinates do not: one side "
    "served or saved rotated weights (as SpinQuant and QuaRot make them), or permuted channels.",
    "missing_residual": "The stream is hidden + residual; only hidden was taken.",
    "partial_sum_served": "With all-reduce fused into the next norm, a rank's output is only its "
    "part of the sum where it is captured; it differs by rank and by batch size.",
    "partial_sum_trained": "The states may come from a server that captured before its ranks' "
    "parts were summed; the draft was trained on that.",
    "overwritten": "The tensor was kept without a copy, and the next layer's attention was added "
    "into it.",
    "noise": "The boundary is certain, the values are off by a fixed share. So differ a quantised "
    "target and the one it was made of. Acceptance suffers little below 0.1.",
    "empty_served": "Most rows are zero or not finite: the slot was never filled, or overflowed.",
    "empty_trained": "Most rows are zero or not finite: the data step did not fill the slot.",
    "moved_rows": "Those rows were gathered from the wrong place, or left over from an earlier "
    "step.",
    "undecided": "None of the causes that this command knows explains the slot clearly better "
    "than the others.",
}

FIXES: dict[str, str] = {
    "row_shift": "Check the trainer's version and its data step; train on pairs of a token and its "
    "own state.",
    "slot_count": "Serve as many layers as were trained, in the same order.",
    "permuted": "Serve the layers in the order of training: the probe's patch capture_order keeps "
    "the order of the list; without it, permute the column blocks of fc.weight.",
    "one_late": "Subtract 1 from each id of the draft's list, or set "
    "SGLANG_EAGLE3_PROBE_LAYER_IDS to output ids.",
    "one_early": "Add 1 to each id of the draft's list, or set SGLANG_EAGLE3_PROBE_LAYER_IDS to "
    "output ids.",
    "other_slot": "Serve the trained layers in the trained order (SGLANG_EAGLE3_PROBE_LAYER_IDS).",
    "other_boundary_trained": "Serve the trained layer (SGLANG_EAGLE3_PROBE_LAYER_IDS).",
    "other_boundary_served": _CAPTURE_AGAIN,
    "embedding_trained": "Put -1 there in the list of output ids "
    "(SGLANG_EAGLE3_PROBE_LAYER_IDS); the patch embedding_capture makes classes take it that "
    "cannot.",
    "embedding_served": "Correct that id in the list (SGLANG_EAGLE3_PROBE_LAYER_IDS).",
    "last_state_trained": "Train on the aux states: in this format the last state has a name of "
    "its own.",
    "last_state_served": "Check that the algorithm is EAGLE3 and that use_aux_hidden_state is "
    "true (sglang-eagle3-probe report shows both).",
    "normed_trained": "Save the states before the norm and train again. In transformers, "
    "hidden_states[-1] is after the final norm.",
    "normed_served": _CAPTURE_AGAIN + " Gemma 3 in SGLang 0.5.17 to 0.5.23 is known for it.",
    "scaled": "Use the same embedding scale and the same weights on both sides.",
    "turned": "Save the training states from the weights that are served.",
    "missing_residual": _CAPTURE_AGAIN,
    "partial_sum_served": "Serve with --enforce-disable-flashinfer-allreduce-fusion, or upgrade "
    "SGLang to 0.5.21 or later.",
    "partial_sum_trained": "Make the training states again with one rank, or without all-reduce "
    "fusion.",
    "overwritten": _CAPTURE_AGAIN + " Gemma 4 in SGLang 0.5.12 to 0.5.21 is known for it.",
    "noise": "If acceptance is too low, save training states from the target as it is served.",
    "empty_served": "Serve at level stats: sglang-eagle3-probe report shows where it comes from.",
    "empty_trained": "Make the training states again.",
    "moved_rows": "Capture once more with --disable-cuda-graph, then with "
    "--disable-overlap-schedule: which of them cures it tells whose buffer it is.",
    "undecided": "Capture with all boundaries, name the target with --target, and compare the same "
    "text from its first token on.",
}
