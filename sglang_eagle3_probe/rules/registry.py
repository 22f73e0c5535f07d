"""Every rule, in the order they run and are reported."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_eagle3_probe.rules import (
    e3p101_trained_ids,
    e3p102_unread_ids,
    e3p103_order,
    e3p104_slot_count,
    e3p105_unit,
    e3p201_fc_bypassed,
    e3p202_algorithm,
    e3p203_no_aux,
    e3p301_not_taken,
    e3p302_not_filled,
    e3p401_no_map,
    e3p402_map,
    e3p403_embedding,
    e3p404_ranks_differ,
    e3p601_accept_length,
    e3p602_recurrence,
    e3p603_first_gap,
    e3p604_later_gap,
    e3p605_uniform_gap,
    e3p606_out_of_vocab,
    e3p607_context_length,
    e3p608_draft_cache,
    e3p609_batch_or_rank,
    e3p630_pruned,
    e3p631_does_not_pay,
    e3p632_first_choice_refused,
    e3p633_unexpanded,
    e3p701_nonfinite,
    e3p702_dead_slot,
    e3p703_same_slots,
    e3p704_embedding_slot,
    e3p705_ranks_values,
    e3p706_not_the_targets,
    e3p901_losses,
    e3p902_faults,
    e3p903_damaged,
    e3p904_release,
    e3p905_nothing_seen,
    e3p906_stats_coverage,
)
from sglang_eagle3_probe.rules.at_load import from_trace, join
from sglang_eagle3_probe.rules.base import Result, Rule
from sglang_eagle3_probe.rules.evidence import Evidence
from sglang_eagle3_probe.rules.judging import find_rule, run_rules, worst_first

RULES: tuple[Rule, ...] = (
    e3p202_algorithm.RULE,  # before its consequences: one wrong flag explains them all
    e3p101_trained_ids.RULE,
    e3p102_unread_ids.RULE,
    e3p103_order.RULE,
    e3p104_slot_count.RULE,
    e3p105_unit.RULE,
    e3p201_fc_bypassed.RULE,
    e3p203_no_aux.RULE,
    e3p301_not_taken.RULE,
    e3p302_not_filled.RULE,
    e3p401_no_map.RULE,
    e3p402_map.RULE,
    e3p403_embedding.RULE,
    e3p404_ranks_differ.RULE,
    e3p701_nonfinite.RULE,
    e3p702_dead_slot.RULE,
    e3p703_same_slots.RULE,
    e3p704_embedding_slot.RULE,
    e3p705_ranks_values.RULE,
    e3p706_not_the_targets.RULE,
    e3p601_accept_length.RULE,  # after everything that may be its cause
    e3p602_recurrence.RULE,
    e3p603_first_gap.RULE,
    e3p604_later_gap.RULE,
    e3p605_uniform_gap.RULE,
    e3p606_out_of_vocab.RULE,
    e3p607_context_length.RULE,
    e3p608_draft_cache.RULE,
    e3p609_batch_or_rank.RULE,
    e3p630_pruned.RULE,
    e3p631_does_not_pay.RULE,
    e3p632_first_choice_refused.RULE,
    e3p633_unexpanded.RULE,
    e3p901_losses.RULE,
    e3p902_faults.RULE,
    e3p903_damaged.RULE,
    e3p904_release.RULE,
    e3p905_nothing_seen.RULE,
    e3p906_stats_coverage.RULE,
)


def find(code: str) -> Rule | None:
    """The rule with this code, in any case."""
    return find_rule(RULES, code)


def judge(evidence: Evidence) -> list[Result]:
    """Run every rule, and join what the static rules said when the server loaded the draft.

    Findings come first, worst first; then what could not be decided. A rule that fails itself
    becomes an unknown result, and the others still run.
    """
    static = from_trace(evidence)

    def check(rule: Rule, earlier: Sequence[Result]) -> Sequence[Result]:
        return rule.check(evidence, join(earlier, static))

    live = run_rules(RULES, check, attach="the trace's wiring records")
    return worst_first(join(live, static))
