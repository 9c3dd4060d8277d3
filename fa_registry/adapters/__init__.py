"""Adapters that call `track` from the callbacks of third-party trainers, one file per trainer."""
