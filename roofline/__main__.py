"""``python -m roofline``."""

from roofline.cli.streams import end_on_interrupt

if __name__ == "__main__":
    # Before the imports that take time.
    end_on_interrupt()

    from roofline.cli.main import main

    main()
