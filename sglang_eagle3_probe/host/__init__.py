"""The only part of the package that knows SGLang: releases, seams, wrapping, guard."""
