"""A run as one HTML file: what was found, the nouns of the page, and its rendering."""
