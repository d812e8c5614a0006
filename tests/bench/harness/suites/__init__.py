"""The suites: which rows there are."""
