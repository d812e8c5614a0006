"""What `tests/gpu/run` and `tests/gpu/bundle` are made of. Needs nothing but Python's standard
library: it runs on machines where nothing can be installed."""
