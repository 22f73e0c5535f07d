"""Which boundaries a draft was trained on, by its own accuracy."""
