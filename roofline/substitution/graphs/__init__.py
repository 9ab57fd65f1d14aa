"""Models as graphs of operators, without weights; how they are captured, counted and built."""
