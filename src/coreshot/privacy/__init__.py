"""What leaves a client of its records: declared releases, the noise that some of them carry, and the promise that follows."""
