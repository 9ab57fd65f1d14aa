"""``python -m roofline``."""

from roofline.cli.main import main

main()
