"""The behaviour patches: embedding_capture and capture_order.

embedding_capture: a list that holds -1 is output ids as a whole, and the embedding output
(boundary 0) is captured like any other boundary. DeepSeek-V2/V3 read such a list as boundaries
from 0.5.13 on, so -1 never matches and the other two are one layer early; up to 0.5.12 they add
1. Boundary 0 itself is captured by SGLang where its class can, and put in by ``embedding_copy``
where it cannot (``host.embedding_capture``).

capture_order: SGLang captures while it runs through the layers, so the concatenation is ascending
whatever the list says. A draft that was trained on another order gets its blocks permuted back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..host.call import Call
from ..host.guard import ProbeConfigurationError
from ..host.session import CapturePlan, Session, stop
from ..host.wrapping import Proceed
from ..settings import PREFIX
from ..trace.records import LayerIds, Slot
from . import embedding_copy, layer_plan, patched_source, told
from .layer_plan import ReadAs, Requested, TargetFacts
from .width_check import check_width


class LayerIdsPatch:
    """Around ``set_eagle3_layers_to_capture``: decides the boundaries, before graph capture."""

    name = "embedding_capture"

    def __init__(self, session: Session) -> None:
        self._session = session
        self._site = session.guard.site("layer_ids")
        self._told: Any = None

    def run(self, proceed: Proceed, call: Call) -> Any:
        model = call.instance
        facts = _target_facts(model, self._session)
        if facts is None:
            return proceed(call)
        requested = self._requested(call.get("layer_ids"))
        read_as, why = layer_plan.reading(requested)
        patching = "embedding_capture" in self._session.settings.patches
        overriding = requested.place == "variable"
        if patching or overriding:
            told.withdraw(model)

        stock, stock_error = self._stock(model, call)
        if not patching and not overriding:
            result = proceed(call)
            if requested.ids is not None:
                read_as, why = layer_plan.inferred_reading(requested.ids, told.told(model) or ())
        elif requested.ids is None:
            result = proceed(call)
        else:
            result = self._capture(proceed, call, requested, read_as, facts, stock, stock_error)
            if read_as is None:
                read_as, why = layer_plan.inferred_reading(requested.ids, told.told(model) or ())
        boundaries = told.told(model)
        if boundaries is None:
            # Not the last pipeline rank: SGLang's setter returned without setting anything.
            return result
        read_as = read_as or "default"
        if patching or overriding:
            message = layer_plan.complaint(
                requested, read_as, boundaries, facts, _stock_text(stock, stock_error, facts)
            )
            if message is not None:
                stop(message)
        self._register(model, facts, requested, read_as, why, boundaries, stock, stock_error)
        check_width(self._session)
        return result

    def _requested(self, configured: Any) -> Requested:
        settings = self._session.settings
        if settings.layer_ids is not None:
            return Requested(settings.layer_ids, "variable", settings.layer_ids_unit)
        if configured is None:
            return Requested(None, "default")
        try:
            ids = tuple(int(i) for i in configured)
        except (TypeError, ValueError):
            stop(
                f"the draft config's eagle_config.eagle_aux_hidden_state_layer_ids is "
                f"{configured!r}, not a list of whole numbers. Nothing was served. "
                "Fix: write a list such as [-1, 2, 30]."
            )
        return Requested(ids, "eagle_config", settings.layer_ids_unit)

    def _stock(self, model: Any, call: Call) -> tuple[list[int] | None, str]:
        """What unpatched SGLang makes of the configured list, by asking it."""
        try:
            call.wrapped(*call.args, **call.kwargs)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"
        return told.captured(model), ""

    def _capture(
        self,
        proceed: Proceed,
        call: Call,
        requested: Requested,
        read_as: ReadAs | None,
        facts: TargetFacts,
        stock: list[int] | None,
        stock_error: str,
    ) -> Any:
        """Make the class capture the requested list, in the class's own reading or ours."""
        assert requested.ids is not None
        model = call.instance
        told.withdraw(model)
        stock_text = _stock_text(stock, stock_error, facts)
        if read_as is None:
            call.replace("layer_ids", list(requested.ids))
            try:
                result = proceed(call)
            except IndexError:
                stop(layer_plan.no_such_layer(requested, facts, stock_text))
            wanted = tuple(told.told(model) or ())
        else:
            wanted = layer_plan.boundaries_of(requested.ids, read_as)
            message = layer_plan.complaint(requested, read_as, wanted, facts, stock_text)
            if message is not None:
                stop(message)
            call.replace("layer_ids", None)
            result = proceed(call)
        if told.told(model) is not None:
            # The class's own reading cannot reach every list (DeepSeek-V2 from 0.5.13 on takes a
            # list that starts with 1 for output ids), so what its setter assigns is set.
            by_copy = 0 in wanted and self._needs_copy(model, requested, facts)
            told.tell(model, wanted, by_copy=by_copy)
        return result

    def _needs_copy(self, model: Any, requested: Requested, facts: TargetFacts) -> bool:
        """Whether boundary 0 must be put in by us; stops where nobody can capture it."""
        if patched_source.captures_embedding(model):
            return False
        if patched_source.is_half_patched(model):
            stop(
                f"aux layer ids {list(requested.ids or ())} ask for the embedding output, and "
                f"{facts.model_class}'s source holds 0001-embedding-capture.patch without "
                "0002-capture-order.patch: both would put it in. Nothing was served. Fix: apply "
                "the whole series with sglang-eagle3-probe patch-source, or --reverse it."
            )
        row = told.capture_of(model)
        way = row.way(self._session.release) if row is not None else None
        if way is None:
            proved = row.proved() if row is not None else "no release so far"
            stop(
                f"aux layer ids {list(requested.ids or ())} ask for the embedding output, which "
                f"{facts.model_class} can capture in {proved}; installed is "
                f"{self._session.release}. Nothing was served. Fix: use such a release, or train "
                "the draft on ids without -1."
            )
        inner = told.inner_of(model)
        if way == "copy" and not embedding_copy.is_in_place(inner):
            stop(
                f"aux layer ids {list(requested.ids or ())} ask for the embedding output, but "
                f"{type(inner).__name__}.forward could not be patched in SGLang "
                f"{self._session.release} (the seam report in this log says why). Nothing was "
                "served. Fix: use a release that docs/compatibility.md lists, or train the draft "
                "on ids without -1."
            )
        return way == "copy"

    def _register(
        self,
        model: Any,
        facts: TargetFacts,
        requested: Requested,
        read_as: ReadAs,
        why: str,
        boundaries: list[int],
        stock: list[int] | None,
        stock_error: str,
    ) -> None:
        session = self._session
        order = None
        kept_by_source = patched_source.keeps_order(model)
        if "capture_order" in session.settings.patches and not kept_by_source:
            order = layer_plan.order_of(boundaries)
        in_order = order is not None or kept_by_source
        in_concatenation = boundaries if in_order else sorted(boundaries)
        plan = CapturePlan(
            boundaries=tuple(in_concatenation),
            hidden_width=int(model.config.hidden_size),
            place=requested.place,
            order=order,
        )
        processor = getattr(model, "logits_processor", None)
        if processor is not None:
            session.plans[processor] = plan
            if processor not in session.target_logits:
                session.target_logits.add(processor)
                for learn in session.on_target_model:
                    learn(model)
        elif order is not None:
            raise ProbeConfigurationError(
                f"{facts.model_class} has no logits_processor, so the order {boundaries} cannot be "
                f"kept. Nothing was served. Fix: list the ids ascending, or unset {PREFIX}."
            )
        if self._site.enabled:
            with self._site:
                self._site.check()
                self._record(
                    model, facts, requested, read_as, why, plan, boundaries, stock, stock_error
                )

    def _record(
        self,
        model: Any,
        facts: TargetFacts,
        requested: Requested,
        read_as: ReadAs,
        why: str,
        plan: CapturePlan,
        listed: list[int],
        stock: list[int] | None,
        stock_error: str,
    ) -> None:
        session = self._session
        applied = list(session.early_patches)
        by_copy = 0 in listed and bool(facts.embedding_fault)
        if stock is None or sorted(listed) != stock or by_copy:
            applied.append("embedding_capture" if 0 in listed else "layer_ids")
        if plan.order is not None:
            applied.append("capture_order")
        origin = {
            "eagle_config": "draft config eagle_config",
            "variable": f"{PREFIX}_LAYER_IDS",
            "default": "SGLang default",
        }[requested.place]
        files = session.draft_files
        trained, source = files.trained_output_ids, "trainer_accuracy.json"
        if session.settings.trained_layer_ids is not None:
            trained = list(session.settings.trained_layer_ids)
            source = f"{PREFIX}_TRAINED_LAYER_IDS"
        stock_fault = stock_error or _stock_fault(stock, facts)
        record = LayerIds(
            model_class=facts.model_class,
            num_layers=facts.num_layers,
            configured=list(requested.ids) if requested.ids is not None else None,
            configured_at=requested.place,
            unit=read_as,
            unit_why=why,
            slots=[Slot(boundary=b, output_id=b - 1, origin=origin) for b in plan.boundaries],
            stock_boundaries=stock,
            stock_error=stock_fault,
            source_patched=patched_source.is_patched(model),
            patches_applied=applied,
            ignored_keys=files.ignored_ids,
            trained_output_ids=trained,
            trained_source=source if trained is not None else "",
            draft_num_aux=None
            if session.draft.fc_in_features is None
            else session.draft.fc_in_features // plan.hidden_width,
        )
        # Up to 0.5.10.post1 the setter is called three times, mostly to say the same again.
        told = msgspec.to_builtins(record)
        if told == self._told:
            return
        self._told = told
        session.layer_ids = record
        session.emit(record)
        session.say(
            "%s captures boundaries %s (output ids %s), in this order; from %s%s: %s%s",
            facts.model_class,
            list(plan.boundaries),
            [b - 1 for b in plan.boundaries],
            origin,
            f" {list(requested.ids)}" if requested.ids is not None else "",
            why,
            (f"; patched: {', '.join(applied)}" if applied else "")
            + ("; its source holds our diffs" if session.layer_ids.source_patched else ""),
        )


class CaptureOrderPatch:
    """Around ``LogitsProcessor.forward``: puts the aux slots into the list's order.

    K tensors are re-listed, which costs nothing. One packed [rows, K * width] tensor (DeepSeek,
    0.5.17 and later) is copied once per forward, inside the graph when there is one.
    """

    name = "capture_order"

    def __init__(self, session: Session) -> None:
        self._plans = session.plans

    def run(self, proceed: Proceed, call: Call) -> Any:
        plan = self._plans.get(call.instance)
        if plan is not None and plan.order is not None:
            aux = call.get("aux_hidden_states")
            if aux is not None:
                call.replace("aux_hidden_states", _reordered(aux, plan.order))
        return proceed(call)


class DelegationPatch:
    """Around Kimi-K2.5's setter, which only delegates: notes the served class, changes nothing."""

    name = "layer_ids_delegation"

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, proceed: Proceed, call: Call) -> Any:
        self._session.served_class = type(call.instance).__name__
        try:
            return proceed(call)
        finally:
            self._session.served_class = ""


def _reordered(aux: Any, order: tuple[int, ...]) -> Any:
    if isinstance(aux, list | tuple):
        return [aux[i] for i in order]
    import torch

    # Slices, not an index list: that would be copied to the device, which a graph cannot record.
    width = aux.shape[-1] // len(order)
    return torch.cat([aux[..., i * width : (i + 1) * width] for i in order], dim=-1)


def _target_facts(model: Any, session: Session) -> TargetFacts | None:
    num_layers = getattr(getattr(model, "config", None), "num_hidden_layers", None)
    if not isinstance(num_layers, int):
        return None
    name = type(model).__name__
    if session.served_class:
        name = f"{session.served_class} ({name})"
    capture = told.capture_of(model)
    return TargetFacts(
        model_class=name,
        num_layers=num_layers,
        reaches_last=capture is not None and capture.reaches_last(session.release),
        embedding_fault="" if capture is None else capture.without_copy(session.release),
    )


def _stock_fault(stock: list[int] | None, facts: TargetFacts) -> str:
    if stock is None:
        return ""
    reachable = range(facts.num_layers + facts.reaches_last)
    captured = len({b for b in stock if b in reachable})
    if captured < len(stock):
        return (
            f"captures {captured} of {len(stock)} aux hidden states and fails at the first prefill"
        )
    return facts.embedding_fault if 0 in stock else ""


def _stock_text(stock: list[int] | None, error: str, facts: TargetFacts) -> str:
    if error:
        return f"would have stopped with {error}"
    if stock is None:
        return "would not have captured anything"
    fault = _stock_fault(stock, facts)
    return f"would have taken it as boundaries {stock}" + (f": {fault}" if fault else "")
