"""The server's side: from a log density to posterior samples. Nothing here can import the data."""
