"""The lint step of tests/run; also alone, as tests/lint/run."""
