"""The figures of index.html that are not trajectories: one file each, with the DataFrame that is its twin."""
