"""Hidden states that trainers saved, read without running anything that is in the files."""
