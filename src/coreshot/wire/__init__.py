"""Messages as bytes, the coding of their arrays, and the ledger of all messages."""
