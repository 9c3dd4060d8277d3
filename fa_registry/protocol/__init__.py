"""Protocol, which judges runs by the rules of an edition and computes their verdicts.

The rules are versioned data. The protocol uses the metrics of the runs, not tensors.
"""
