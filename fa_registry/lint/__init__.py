"""The pitfalls linter: protocol §5, items 1, 2, 3, 7, 8, 9 and 12, found in syntax trees alone; nothing it reads is imported."""
