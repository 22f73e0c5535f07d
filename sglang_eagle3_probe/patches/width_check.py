"""count x width of the capture against the input of the draft's ``fc``."""

from __future__ import annotations

from ..host.session import Session, stop
from .layer_plan import width_complaint


def check_width(session: Session) -> None:
    """Compare the two once both are known; called by whoever learns one of them.

    Raises:
        ProbeConfigurationError: they differ.
    """
    fc_in_features = session.draft.fc_in_features
    if fc_in_features is None:
        return
    for plan in list(session.plans.values()):
        message = width_complaint(plan.boundaries, plan.hidden_width, fc_in_features, plan.place)
        if message is not None:
            stop(message)
