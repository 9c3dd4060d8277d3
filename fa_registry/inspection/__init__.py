"""Lists, checks and clean-up of what a store and this machine have."""
