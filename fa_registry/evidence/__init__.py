"""Evidence for recorded numbers: runs are re-initialised, replayed, recomputed and compared."""
