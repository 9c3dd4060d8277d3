"""Callbacks for third-party trainers, one module per trainer. The callbacks call `track`."""
