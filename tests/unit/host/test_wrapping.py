"""Wrapping, on a made-up module: what no real server can be made to do on demand."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sglang_eagle3_probe.host.call import Call
from sglang_eagle3_probe.host.guard import Guard, ProbeConfigurationError
from sglang_eagle3_probe.host.seams import Seam
from sglang_eagle3_probe.host.versions import Releases
from sglang_eagle3_probe.host.wrapping import Handler, Installer, Proceed, SeamError, Tap, wrap
from sglang_eagle3_probe.trace.records import Fault

SOURCE = """
class Worker:
    def verify(self, batch, *, flag=False):
        if batch == "bad":
            raise KeyError("the host's own")
        return ("verified", batch, flag)

    @staticmethod
    def parse(text):
        return text.upper()

    @classmethod
    def make(cls):
        return cls()

    @property
    def size(self):
        return 3

class Child(Worker):
    pass
"""


@pytest.fixture
def host() -> Iterator[types.ModuleType]:
    module = types.ModuleType("pretend_host")
    exec(SOURCE, module.__dict__)
    sys.modules["pretend_host"] = module
    yield module
    del sys.modules["pretend_host"]


def seam(attribute: str, *parameters: str) -> Seam:
    return Seam("test", "pretend_host", attribute, parameters, Releases(), "for this test")


def guard(faults: list[Fault], limit: int = 3, induced: tuple[str, ...] = ()) -> Guard:
    return Guard(limit, faults.append, induced)


def test_tap_sees_arguments_by_name_however_they_are_passed(host: types.ModuleType) -> None:
    seen: list[tuple[Any, Any, Any]] = []

    def before(call: Call) -> None:
        seen.append((call.get("batch"), call.get("flag"), call.get("not_in_this_release")))

    wrap(host, seam("Worker.verify", "batch"), [Tap(guard([]).site("t"), before=before)])
    worker = host.Worker()
    assert worker.verify("a") == ("verified", "a", False)
    assert worker.verify(batch="b", flag=True) == ("verified", "b", True)
    assert host.Worker.verify(worker, "c") == ("verified", "c", False)
    assert host.Child().verify("d") == ("verified", "d", False)
    assert seen == [("a", None, None), ("b", True, None), ("c", None, None), ("d", None, None)]


def test_signature_survives(host: types.ModuleType) -> None:
    before = inspect.signature(host.Worker.verify)
    wrap(host, seam("Worker.verify"), [Tap(guard([]).site("t"))])
    assert inspect.signature(host.Worker.verify) == before


@pytest.mark.parametrize("half", ["before", "after"])
def test_a_raising_tap_changes_nothing_and_switches_itself_off(
    host: types.ModuleType, half: str
) -> None:
    faults: list[Fault] = []
    calls = []

    def broken(*_: Any) -> None:
        calls.append(1)
        raise ValueError("ours")

    keywords: dict[str, Callable[..., None]] = {half: broken}
    wrap(host, seam("Worker.verify"), [Tap(guard(faults, limit=2).site("t"), **keywords)])
    for _ in range(5):
        assert host.Worker().verify("a") == ("verified", "a", False)
    assert len(calls) == 2
    assert [(f.site, f.count, f.disabled) for f in faults] == [("t", 1, False), ("t", 2, True)]
    assert "ValueError: ours" in faults[0].traceback


def test_induced_fault_counts_like_a_real_one(host: types.ModuleType) -> None:
    faults: list[Fault] = []
    tap = Tap(guard(faults, limit=1, induced=("t",)).site("t"), before=lambda _call: None)
    wrap(host, seam("Worker.verify"), [tap])
    assert host.Worker().verify("a") == ("verified", "a", False)
    assert "InducedFault" in faults[0].error


def test_the_hosts_exception_passes_untouched(host: types.ModuleType) -> None:
    faults: list[Fault] = []
    tap = Tap(guard(faults).site("t"), before=lambda _c: None, after=lambda _c, _r: None)
    wrap(host, seam("Worker.verify"), [tap])
    with pytest.raises(KeyError, match="the host's own"):
        host.Worker().verify("bad")
    assert faults == []


def test_a_configuration_error_stops_the_host(host: types.ModuleType) -> None:
    def refuse(_call: Call) -> None:
        raise ProbeConfigurationError("no")

    wrap(host, seam("Worker.verify"), [Tap(guard([]).site("t"), before=refuse)])
    with pytest.raises(ProbeConfigurationError):
        host.Worker().verify("a")


def test_handlers_run_outermost_first_and_may_replace_arguments(host: types.ModuleType) -> None:
    order = []

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, proceed: Proceed, call: Call) -> Any:
            order.append(self.name)
            call.replace("batch", call.get("batch") + self.name)
            call.replace("flag", True)
            return proceed(call)

    handlers: list[Handler] = [Named("1"), Named("2")]
    wrap(host, seam("Worker.verify"), handlers)
    assert host.Worker().verify("a") == ("verified", "a12", True)
    assert order == ["1", "2"]


def test_each_tap_has_its_own_scratch(host: types.ModuleType) -> None:
    seen: dict[str, Any] = {}

    def tap(name: str) -> Tap:
        def before(call: Call) -> None:
            call.scratch = name

        def after(call: Call, _result: Any) -> None:
            seen[name] = call.scratch

        return Tap(guard([]).site(name), before=before, after=after)

    def only_after(call: Call, _result: Any) -> None:
        seen["third"] = call.scratch

    third = Tap(guard([]).site("third"), after=only_after)
    wrap(host, seam("Worker.verify"), [tap("outer"), third, tap("inner")])
    host.Worker().verify("a")
    assert seen == {"outer": "outer", "third": None, "inner": "inner"}


def test_a_paired_tap_looks_back_only_at_what_it_kept(host: types.ModuleType) -> None:
    seen = []

    def before(call: Call) -> None:
        if call.get("batch") != "passed over":
            call.scratch = call.get("batch")

    paired = Tap(
        guard([]).site("t"),
        before=before,
        after=lambda call, result: seen.append((call.scratch, result[1])),
        paired=True,
    )
    wrap(host, seam("Worker.verify", "batch"), [paired])
    for batch in ("a", "passed over", "b"):
        host.Worker().verify(batch)
    assert seen == [("a", "a"), ("b", "b")]


def test_taps_stand_in_order_among_other_handlers(host: types.ModuleType) -> None:
    order = []

    class Around:
        name = "around"

        def run(self, proceed: Proceed, call: Call) -> Any:
            order.append("around in")
            try:
                return proceed(call)
            finally:
                order.append("around out")

    def tap(name: str) -> Tap:
        return Tap(
            guard([]).site(name),
            before=lambda _call: order.append(f"{name} in"),
            after=lambda _call, _result: order.append(f"{name} out"),
        )

    names = ["1", "2", "around", "3", "4"]
    handlers: list[Handler] = [Around() if n == "around" else tap(n) for n in names]
    wrap(host, seam("Worker.verify"), handlers)
    host.Worker().verify("a")
    assert order == [f"{n} in" for n in names] + [f"{n} out" for n in reversed(names)]


@pytest.mark.parametrize("half", ["before", "after"])
def test_the_taps_beside_one_that_raises_go_on(host: types.ModuleType, half: str) -> None:
    faults: list[Fault] = []
    seen: list[tuple[str, Any]] = []

    def broken(*_: Any) -> None:
        raise ValueError("ours")

    def keeps(call: Call) -> None:
        call.scratch = "mine"

    def tells(call: Call, result: Any) -> None:
        seen.append((call.scratch, result[1]))

    keywords: dict[str, Callable[..., None]] = {half: broken}
    sites = guard(faults)
    taps = [Tap(sites.site(name), before=keeps, after=tells) for name in ("outer", "inner")]
    taps.insert(1, Tap(sites.site("broken"), **keywords))
    wrap(host, seam("Worker.verify"), taps)
    assert host.Worker().verify("a") == ("verified", "a", False)
    assert seen == [("mine", "a")] * 2
    assert [fault.site for fault in faults] == ["broken"]


@pytest.mark.parametrize("half", ["before", "after"])
def test_what_is_no_error_of_ours_passes(host: types.ModuleType, half: str) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    faults: list[Fault] = []
    keywords: dict[str, Callable[..., None]] = {half: interrupted}
    wrap(host, seam("Worker.verify"), [Tap(guard(faults).site("t"), **keywords)])
    with pytest.raises(KeyboardInterrupt):
        host.Worker().verify("a")
    assert faults == []


def test_static_method_survives_a_hook_registry_that_takes_it_apart(
    host: types.ModuleType,
) -> None:
    """SGLang's HookRegistry re-wraps ``__dict__[name].__func__`` of a staticmethod."""
    seen = []
    tap = Tap(guard([]).site("t"), before=lambda call: seen.append(call.get("text")))
    wrapped = wrap(host, seam("Worker.parse"), [tap])
    inner = host.Worker.__dict__["parse"].__func__

    def theirs(*args: Any) -> Any:
        return inner(*args)

    theirs.__wrapped__ = inner  # type: ignore[attr-defined]
    host.Worker.parse = staticmethod(theirs)
    assert host.Worker.parse("x") == "X"
    assert host.Worker().parse("y") == "Y"
    assert seen == ["x", "y"]
    assert wrapped.in_place()


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("Worker.size", "property"),
        ("Worker.make", "classmethod"),
        ("Worker.absent", "does not exist"),
        ("Absent.verify", "does not exist"),
    ],
)
def test_unwrappable_targets_are_refused(
    host: types.ModuleType, attribute: str, reason: str
) -> None:
    with pytest.raises(SeamError, match=reason):
        wrap(host, seam(attribute), [Tap(guard([]).site("t"))])


def test_installer_reports_each_state(host: types.ModuleType) -> None:
    tap = Tap(guard([]).site("t"))
    installer = Installer({"test": [tap]})
    rows = [
        seam("Worker.verify", "batch", "grammar_barrier"),
        seam("Worker.absent"),
        Seam("test", "not_imported_here", "A.b", (), Releases(), "for this test"),
    ]
    installer.install(rows)
    old = Seam("test", "pretend_host", "Old.way", (), Releases("0.5.9", "0.5.10"), "for this test")
    installer.note_absent([old], "0.5.23")
    states = {s.target.split(":")[1]: (s.state, s.why) for s in installer.states()}
    assert states["Worker.verify"] == ("patched", "parameters not in this release: grammar_barrier")
    assert states["Worker.absent"][0] == "failed"
    assert states["A.b"][0] == "not_imported"
    assert states["Old.way"] == (
        "absent",
        "this row holds for SGLang 0.5.9 to 0.5.10; installed is 0.5.23",
    )
    host.Worker.verify = lambda self, batch: None
    states = {s.target.split(":")[1]: (s.state, s.why) for s in installer.states()}
    assert states["Worker.verify"][0] == "failed"
    assert "replaced" in states["Worker.verify"][1]
