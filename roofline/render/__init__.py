"""Reports laid out for terminals, Markdown and HTML."""
