"""Storages for :mod:`capstate.ledger`: each module is one, and is imported only by who uses it."""
