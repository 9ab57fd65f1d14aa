"""What pictures show, as data: lines, points and labels, drawn elsewhere."""
