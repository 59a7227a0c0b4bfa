"""The server's side: log density -> posterior samples. Nothing here can import the data."""
