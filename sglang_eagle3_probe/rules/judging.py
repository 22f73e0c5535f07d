"""Running a set of rules, whichever kind they are: one way to look up, to run and to count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from sglang_eagle3_probe.rules.base import SEVERITIES, Finding, Result, Unknown


class Coded(Protocol):
    """What every rule has, of a trace or of files."""

    @property
    def code(self) -> str: ...

    @property
    def title(self) -> str: ...


AnyRule = TypeVar("AnyRule", bound=Coded)


def find_rule(rules: Iterable[AnyRule], code: str) -> AnyRule | None:
    """The rule with this code, in any case."""
    return next((rule for rule in rules if rule.code == code.upper()), None)


def run_rules(
    rules: Iterable[AnyRule],
    check: Callable[[AnyRule, Sequence[Result]], Sequence[Result]],
    *,
    attach: str,
) -> list[Result]:
    """Results of every rule, in the order of the rules.

    A rule that fails itself becomes an unknown result, and the others still run.

    Args:
        check: runs one rule, given the results of those before it.
        attach: what to send along when a rule's own failure is reported.
    """
    results: list[Result] = []
    for rule in rules:
        try:
            results.extend(check(rule, tuple(results)))
        except Exception as error:  # a defect of one rule must not hide the others
            results.append(
                Unknown(
                    rule.code,
                    rule.title,
                    f"the rule itself failed ({type(error).__name__}: {error})",
                    f"report this to sglang-eagle3-probe, with {attach}",
                )
            )
    return results


def worst_first(results: Iterable[Result]) -> list[Result]:
    """Findings, worst first; then what could not be decided. Otherwise the order stays."""
    listed = list(results)
    findings = [r for r in listed if isinstance(r, Finding)]
    findings.sort(key=lambda f: SEVERITIES.index(f.severity))
    return [*findings, *(r for r in listed if isinstance(r, Unknown))]


def exit_code(results: Iterable[Result]) -> int:
    """0 clean, 1 errors or warnings. (2, could not run, is the command's to say.)"""
    return int(any(isinstance(r, Finding) and r.severity != "note" for r in results))
