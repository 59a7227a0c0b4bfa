"""Messages as bytes, the coding of their arrays, and the ledger of everything that crossed."""
