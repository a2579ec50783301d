"""The data types that every other package uses, and readers of small files."""
