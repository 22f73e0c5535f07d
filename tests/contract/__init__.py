"""The seam table and the doctor against SGLang releases: by sources, and by running them."""
