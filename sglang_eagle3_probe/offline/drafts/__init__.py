"""EAGLE-3 drafts in plain torch: every flag that servers and trainers have."""
