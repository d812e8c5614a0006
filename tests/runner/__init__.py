"""What tests/run does: chooses, builds and runs all tests that need no GPU, and counts their
cases."""
