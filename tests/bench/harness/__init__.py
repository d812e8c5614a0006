"""The benchmark harness: ../README.md says how to run it and how to read it."""
