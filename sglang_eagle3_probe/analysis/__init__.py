"""Numbers from records. Pure functions; nothing here reads files or prints."""
