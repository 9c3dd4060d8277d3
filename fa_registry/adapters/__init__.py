"""Callbacks for third-party trainers that call `track`, one module per trainer."""
