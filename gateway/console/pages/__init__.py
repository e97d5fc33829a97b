"""One page a module: what is asked in a URL, which calls answer it, what the template and the JSON get."""
