"""What is said of results, as data: headings, rows and notes, laid out elsewhere."""
