"""The nouns that every other package uses, and the reading of small files."""
