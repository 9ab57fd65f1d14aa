"""What machines could do on paper: microarchitectures, clock x width x pipes, data sheets."""
