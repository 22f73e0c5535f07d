"""The behaviour patches as source diffs: applied to the files of an SGLang, and taken out again."""
