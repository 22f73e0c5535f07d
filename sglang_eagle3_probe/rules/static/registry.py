"""Every static rule, in the order they run."""

from __future__ import annotations

from sglang_eagle3_probe.checkpoint.facts import Situation
from sglang_eagle3_probe.rules.base import Result
from sglang_eagle3_probe.rules.judging import find_rule, run_rules, worst_first
from sglang_eagle3_probe.rules.static import (
    e3p110_unread_place,
    e3p111_other_unit,
    e3p112_range,
    e3p113_repeats,
    e3p114_order,
    e3p115_embedding,
    e3p116_last,
    e3p117_no_setter,
    e3p118_meaning_moved,
    e3p119_wrong_values,
    e3p120_count,
    e3p122_malformed,
    e3p123_trained_unknown,
    e3p124_trainer_notes,
    e3p210_algorithm,
    e3p211_eagle1_draft,
    e3p212_no_aux,
    e3p213_architecture,
    e3p214_equal_width,
    e3p310_untaken,
    e3p311_unfilled,
    e3p312_flag_without_weights,
    e3p313_weights_without_flag,
    e3p314_unread_flags,
    e3p315_bias,
    e3p316_layers,
    e3p317_aux_count,
    e3p318_null_width,
    e3p319_double_norm,
    e3p320_activation,
    e3p321_later_layers,
    e3p322_mla_rank,
    e3p324_layers_name,
    e3p325_model_prefix,
    e3p326_head_norms,
    e3p327_norm_output_origin,
    e3p328_head_width,
    e3p410_no_map,
    e3p411_direct_map,
    e3p412_map_algebra,
    e3p413_zero_map,
    e3p414_sizes,
    e3p415_draft_vocab_key,
    e3p416_other_vocabulary,
    e3p417_coverage,
    e3p420_own_embedding,
    e3p421_tied,
    e3p422_width,
    e3p423_head_shape,
    e3p510_rope_layout,
    e3p511_context,
    e3p512_window,
    e3p513_theta_differs,
    e3p514_mrope,
    e3p520_inherited_quant,
    e3p521_dtype,
    e3p522_draft_quant,
    e3p523_kv_dtype,
    e3p610_effective,
    e3p611_incomplete,
    e3p612_accept_rate,
    e3p613_rejection_sampling,
    e3p614_token_map,
    e3p615_overrides,
)
from sglang_eagle3_probe.rules.static.base import StaticRule
from sglang_eagle3_probe.rules.static.settled import not_settled

RULES: tuple[StaticRule, ...] = (
    e3p210_algorithm.RULE,  # before its consequences: one wrong flag explains them all
    e3p211_eagle1_draft.RULE,
    e3p213_architecture.RULE,
    e3p110_unread_place.RULE,
    e3p111_other_unit.RULE,
    e3p112_range.RULE,
    e3p113_repeats.RULE,
    e3p114_order.RULE,
    e3p115_embedding.RULE,
    e3p116_last.RULE,
    e3p117_no_setter.RULE,
    e3p118_meaning_moved.RULE,
    e3p119_wrong_values.RULE,
    e3p120_count.RULE,
    e3p122_malformed.RULE,
    e3p123_trained_unknown.RULE,
    e3p124_trainer_notes.RULE,
    e3p212_no_aux.RULE,
    e3p214_equal_width.RULE,
    e3p310_untaken.RULE,
    e3p311_unfilled.RULE,
    e3p312_flag_without_weights.RULE,
    e3p313_weights_without_flag.RULE,
    e3p314_unread_flags.RULE,
    e3p315_bias.RULE,
    e3p316_layers.RULE,
    e3p317_aux_count.RULE,
    e3p318_null_width.RULE,
    e3p319_double_norm.RULE,
    e3p320_activation.RULE,
    e3p321_later_layers.RULE,
    e3p322_mla_rank.RULE,
    e3p324_layers_name.RULE,
    e3p325_model_prefix.RULE,
    e3p326_head_norms.RULE,
    e3p327_norm_output_origin.RULE,
    e3p328_head_width.RULE,
    e3p410_no_map.RULE,
    e3p411_direct_map.RULE,
    e3p412_map_algebra.RULE,
    e3p413_zero_map.RULE,
    e3p414_sizes.RULE,
    e3p415_draft_vocab_key.RULE,
    e3p416_other_vocabulary.RULE,
    e3p417_coverage.RULE,
    e3p420_own_embedding.RULE,
    e3p421_tied.RULE,
    e3p422_width.RULE,
    e3p423_head_shape.RULE,
    e3p510_rope_layout.RULE,
    e3p511_context.RULE,
    e3p512_window.RULE,
    e3p513_theta_differs.RULE,
    e3p514_mrope.RULE,
    e3p520_inherited_quant.RULE,
    e3p521_dtype.RULE,
    e3p522_draft_quant.RULE,
    e3p523_kv_dtype.RULE,
    e3p610_effective.RULE,
    e3p611_incomplete.RULE,
    e3p612_accept_rate.RULE,
    e3p613_rejection_sampling.RULE,
    e3p614_token_map.RULE,
    e3p615_overrides.RULE,
)


def find(code: str) -> StaticRule | None:
    """The static rule with this code, in any case."""
    return find_rule(RULES, code)


def judge(situation: Situation) -> list[Result]:
    """Run every static rule. Findings come first, worst first; then what could not be decided.

    A rule that fails itself becomes an unknown result, and the others still run. Where the
    situation is that of a running server, what it proves goes before what the files predict.
    """
    results = run_rules(
        RULES, lambda rule, _earlier: rule.check(situation), attach="both config.json files"
    )
    return worst_first(not_settled(situation, results))
