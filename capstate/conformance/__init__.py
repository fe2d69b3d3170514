"""Suites that others can run against their own implementations. No pytest needed."""
