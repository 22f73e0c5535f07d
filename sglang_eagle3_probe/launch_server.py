"""``python -m sglang_eagle3_probe.launch_server``: SGLang's server, with the probe's flags.

For SGLang before 0.5.11, which has no plugins; works on later ones too, and there the plugin that
SGLang loads finds the process attended to. Takes the arguments of ``sglang.launch_server``. Without
``--enable-probe`` it just serves.

SGLang spawns its processes (all releases), and a spawned Python process first imports the main
module of its parent again, under the name ``__mp_main__``. That module is this one, down to the
last grandchild, so every scheduler gets its hooks before it imports anything of SGLang.
"""

from __future__ import annotations

from sglang_eagle3_probe import plugin


def main() -> None:
    """Serve."""
    from sglang_eagle3_probe.host.launch import serve

    plugin.register()
    serve()


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    plugin.register_spawned()
