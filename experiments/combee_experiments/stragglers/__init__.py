"""Not waiting for the slowest: late groups left out, slow calls made again."""
