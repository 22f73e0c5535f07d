"""What changes behaviour. Everything else in the package only looks."""
