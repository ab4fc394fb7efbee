"""What the documentation claims, measured: ``python -m benchmarks NAME [--quick]``.

Each benchmark is a module with ``run(args)`` and, if it has options of its own,
``add_arguments(parser)``. A run prints a table and ends in asserts of what the documentation
states; a quick one takes seconds, tries that the code runs, and claims nothing. ``args`` holds

- ``quick``: whether to try the code only, on few rows and epochs;
- ``results``: the folder of the ledgers, and ``images``: that of the documentation's pictures;
  both temporary in a quick run.
"""
