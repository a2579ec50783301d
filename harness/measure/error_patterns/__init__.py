"""Error patterns: rules over two arrays that name the usual cause of an error."""
