"""For older SGLang releases on newer dependencies; on the path only then (``rig_environment``).

They register configs with Transformers that newer ones have of their own, at import, before any
plugin is loaded. SGLang's own is kept, as it was then.
"""

from __future__ import annotations

from typing import Any

import wrapt


def _allow_second_registration(auto: Any) -> None:
    plain = auto._LazyConfigMapping.register

    def register(self: Any, key: Any, value: Any, exist_ok: bool = False) -> Any:
        return plain(self, key, value, exist_ok=True)

    auto._LazyConfigMapping.register = register


wrapt.register_post_import_hook(
    _allow_second_registration, "transformers.models.auto.configuration_auto"
)
