"""Speed as ratios to a named floor that is measured in the same run; absolute times stand beside.

``python -m benchmarks [--json] [NAME...]``. A module here offers ``BENCHMARKS``: name to function returning figures
(:class:`benchmarks.timing.Figure`). A limit in a figure is a promise of the project; a figure without one informs.
The run exits 1 if a promise is not kept. No test measures time.
"""
