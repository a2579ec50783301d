"""A run as one HTML file: the page's sections, tables and charts, and its rendering."""
