"""`track` inside other people's trainers, one file each: what a trainer calls when, and nothing else."""
